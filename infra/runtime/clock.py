"""The clock of the machine."""

from time import time_ns

from mnemolog.domain.values import Micros


class SystemClock:
    """Wall time. It may jump; nothing orders by it."""

    def now(self) -> Micros:
        """Microseconds since the Unix epoch, UTC."""
        return Micros(time_ns() // 1_000)
