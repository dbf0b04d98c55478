"""Scripts that do to their process what no script should."""

import os
import signal

FATAL = "1/17"


def dying_amid(seed: str) -> None:
    """Agree with everything, but die of one seed, as of a fault in native code."""
    if seed == FATAL:
        os.kill(os.getpid(), signal.SIGKILL)
