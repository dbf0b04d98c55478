"""Reading a stream by positions of the log."""

import pytest

from mnemolog.infra.log.reader import LogReader


class PositionsOnly(LogReader):
    """Stands for a reader of a log: the positions of one stream by version, and how often they were read."""

    def __init__(self, positions: list[int]) -> None:
        self.positions, self.queries = positions, 0

    def position_at(self, _stream: str, version: int) -> int:
        """Return the position of a version, from 1 on."""
        self.queries += 1
        return self.positions[version - 1]


@pytest.mark.parametrize("positions", [[], [1], [3], [2, 3, 7], [1, 2, 3, 4], [5, 6, 9, 20, 21, 22, 40]])
def test_the_version_at_a_position_is_that_of_the_last_event_up_to_it(positions):
    """At every position from before the stream to after it."""
    for position in range(50):
        found = PositionsOnly(positions).version_at("s", position, latest=len(positions))
        assert found == sum(one <= position for one in positions)


def test_both_ends_of_a_long_stream_take_at_most_one_query():
    """Most reads want all turns of a session."""
    reads = PositionsOnly(list(range(1, 10_001)))
    assert reads.version_at("s", 0, latest=10_000) == 0
    assert reads.version_at("s", 10_000, latest=10_000) == 10_000
    assert reads.queries == 1
