"""What a session sees, as spans: every way of asking agrees with a list comprehension over all turns."""

from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pysqlite3 import dbapi2

from mnemolog.domain.events import RecordedEvent, TurnRecorded
from mnemolog.domain.head import Head
from mnemolog.domain.message import Role
from mnemolog.domain.position import ORIGIN
from mnemolog.domain.session import Span, session_stream, without
from mnemolog.projections.sql import queries
from mnemolog.projections.sql.conversation_views import Views
from mnemolog.projections.sql.database import ProjectionDatabase
from mnemolog.projections.sql.queries import SPANS_INLINE_MAX, Filters, positions_in
from mnemolog.projections.sql.words import terms_of
from tests.support import EPOCH_2024, blocks_of, found_by_text, positions_left, started

SESSIONS = ("a", "b", "c", "d'\"%")
WORDS = ("tea", "dog", "ferry")


class MemoryLog:
    """A log that is a list: `turns` says who spoke of what, one event each behind the starts of all sessions."""

    log_id = "a list"

    def __init__(self, turns: list[tuple[str, str]]) -> None:
        texts = [(session, started(session)) for session in SESSIONS]
        texts += [(session, TurnRecorded(role=Role.USER, text=text)) for session, text in turns]
        versions = dict.fromkeys(SESSIONS, 0)
        self.events: list[RecordedEvent] = []
        for position, (session, event) in enumerate(texts, 1):
            versions[session] += 1
            recorded = RecordedEvent(
                position=position,
                stream=session_stream(session),
                version=versions[session],
                recorded_at=EPOCH_2024 + position,
                key=None,
                event=event,
            )
            self.events.append(recorded)

    def head(self):
        return Head(position=len(self.events), digest="")

    def digest_at(self, position):
        return b"" if position <= len(self.events) else None

    def read(self, *, after, upto, batch_max=500):
        if events := self.events[after:upto]:
            yield events

    def turns(self):
        """Position, session and text of every turn."""
        turns = [event for event in self.events if isinstance(event.event, TurnRecorded)]
        return [(turn.position, turn.stream.removeprefix("session/"), turn.event.text) for turn in turns]


@contextmanager
def reading(log):
    """A connection to views in memory that have read all of `log`."""
    engine = sa.create_engine(
        "sqlite+pysqlite://",
        module=dbapi2,
        creator=lambda: dbapi2.connect(":memory:", isolation_level=None, check_same_thread=False),
        poolclass=sa.pool.StaticPool,
    )
    views = Views(ProjectionDatabase(engine, Path("memory")), log)
    views.catch_up()
    with views.database.reading() as connection:
        yield connection
    engine.dispose()


def sees(spans, session, position):
    """The model: whether a turn lies in any span."""
    return any(
        span.session == session and span.after < position and (span.upto is None or position <= span.upto)
        for span in spans
    )


@pytest.fixture(autouse=True, scope="module")
def small_blocks():
    with blocks_of(32):
        yield


LOGS = st.lists(st.tuples(st.sampled_from(SESSIONS), st.sampled_from(WORDS)), max_size=40).map(MemoryLog)
PLACES = st.integers(min_value=0, max_value=50)
SPANS = st.lists(
    st.builds(Span, st.sampled_from([*SESSIONS, "nobody"]), PLACES, st.none() | PLACES),
    max_size=2 * SPANS_INLINE_MAX,
).map(tuple)
PAGES = st.integers(min_value=1, max_value=12)
many = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@many
@given(LOGS, SPANS)
def test_the_filter_leaves_the_turns_of_the_spans_and_no_other(log, spans):
    """For the vector leg as positions, for the text leg among the matches, alone and beside other filters."""
    visible = [(position, text) for position, session, text in log.turns() if sees(spans, session, position)]
    with reading(log) as connection:
        assert positions_left(connection, Filters(spans=spans)) == [position for position, _ in visible]
        assert positions_left(connection, Filters(spans=spans, roles=(Role.TOOL,))) == []
        for word in WORDS:
            found = found_by_text(connection, terms_of(word), k=100, filters=Filters(spans=spans))
            assert sorted(found) == [position for position, text in visible if text == word]
            unfiltered = found_by_text(connection, terms_of(word), k=100, filters=Filters())
            assert found == [position for position in unfiltered if position in found]


@many
@given(LOGS, SPANS, PAGES, PLACES, st.none() | PLACES)
def test_pages_in_both_directions_are_slices_of_what_is_visible(log, spans, limit, after, before):
    """From any place to any place, and page after page."""
    visible = [(position, text) for position, session, text in log.turns() if sees(spans, session, position)]
    between = [(p, text) for p, text in visible if p > after and (before is None or p < before)]

    def page(**options):
        turns = queries.turns_in(connection, spans, limit=limit, **options)
        return [(turn.position, turn.text) for turn in turns]

    with reading(log) as connection:
        assert page(after=after, before=before) == between[:limit]
        assert page(after=after, before=before, newest_first=True) == between[::-1][:limit]
        forward, backward = [], []
        while found := page(after=forward[-1][0] if forward else ORIGIN):
            forward += found
        while found := page(before=backward[-1][0] if backward else None, newest_first=True):
            backward += found
        assert forward == backward[::-1] == visible


def test_no_spans_are_not_the_same_as_no_filter():
    """An empty tuple hides everything, None hides nothing."""
    with reading(MemoryLog([("a", "tea")])) as connection:
        for spans, expected in (((), []), (None, [5])):
            filters = Filters(spans=spans)
            assert filters.leave_everything is (spans is None)
            assert positions_left(connection, filters) == expected
            assert found_by_text(connection, ["tea"], k=5, filters=filters) == expected
        assert queries.turns_in(connection, (), limit=5) == []


@pytest.mark.parametrize("count", [SPANS_INLINE_MAX, SPANS_INLINE_MAX + 1, 2_000])
def test_thousands_of_spans_are_one_statement(count):
    """SQLite's limits on expressions and variables are out of reach: a session rewound a thousand times works."""
    log = MemoryLog([("a", "tea"), ("b", "tea")] * count)
    spans = tuple(Span("a", 4 + 4 * n, 4 + 4 * n + 2) for n in range(count))
    expected = [position for position, session, _ in log.turns() if session == "a" and position % 4 in (1, 2)]
    expected = [position for position in expected if position <= spans[-1].upto]
    with reading(log) as connection:
        assert positions_left(connection, Filters(spans=spans)) == expected
        assert found_by_text(connection, ["tea"], k=10_000, filters=Filters(spans=spans)) == expected
        for newest_first in (False, True):
            assert sorted(positions_in(connection, spans, newest_first=newest_first, limit=10_000)) == expected


def test_a_page_reads_no_further_than_it_is_long():
    """The newest turns of a long history cost the page: spans beyond it are not asked for."""
    spans = [Span("a", 4 + 4 * n, 8 + 4 * n) for n in range(100)]
    with reading(MemoryLog([("a", "tea")] * 400)) as connection:
        asked = []
        connection.connection.driver_connection.set_trace_callback(asked.append)
        assert positions_in(connection, spans, newest_first=True, limit=8) == list(range(404, 396, -1))
        assert positions_in(connection, spans, after=204, limit=8) == list(range(205, 213))
        assert len(asked) == 4


CLOSED = st.builds(
    lambda session, after, length: Span(session, after, after + length),
    st.sampled_from("ab"),
    st.integers(0, 12),
    st.integers(0, 6),
)


@given(st.lists(CLOSED, max_size=4), st.lists(CLOSED, max_size=4))
def test_what_is_left_without_other_spans_is_what_a_list_says(spans, others):
    """Position by position; no piece that is left is empty."""

    def held(spans):
        return {(session, at) for session in "ab" for at in range(1, 20) if any(s.holds(session, at) for s in spans)}

    left = without(tuple(spans), tuple(others))
    assert held(left) == held(spans) - held(others)
    assert others == [] or all(span.after < span.upto for span in left if span not in spans)


def steps_of(count, call):
    """The steps of SQLite's machine that `call` takes with views of so many turns in each of two sessions."""
    done = []
    with reading(MemoryLog([("a", "tea"), ("b", "tea")] * count)) as connection:
        driver = connection.connection.driver_connection
        driver.set_progress_handler(lambda: done.append(1), 1)
        call(connection)
        driver.set_progress_handler(None, 1)
    return len(done)


def test_a_page_of_a_long_session_costs_as_much_as_one_of_a_short_session():
    """Wherever the page begins: its ends are found by bisection. Counts are kept with the sessions."""
    pages, counts = [], []
    for count in (250, 4_000):

        def two_pages(connection, middle=2 + count):
            assert len(positions_in(connection, [Span("a", 0)], after=middle, limit=20)) == 20
            assert len(positions_in(connection, [Span("a", 0, middle)], newest_first=True, limit=20)) == 20

        pages.append(steps_of(count, two_pages))
        counts.append(steps_of(count, queries.counts))
    assert pages[1] < 2 * pages[0]
    assert counts[0] == counts[1]
