"""Views, embeddings and vectors are disposable and tagged; what a session sees is spans of turns.

Lists of sessions as of any position, in pages.
"""

from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pysqlite3 import dbapi2

from mnemolog import Head, MemoryStore
from mnemolog.domain import errors
from mnemolog.domain.choices import MODELS_STREAM
from mnemolog.domain.events import (
    CheckpointCreated,
    CheckpointDeleted,
    CheckpointRestored,
    ModelActivated,
    NoteAdded,
    NotesCleared,
    RecordedEvent,
    SessionEnded,
    SessionResumed,
    SessionStarted,
    SessionSwitched,
    TaskChanged,
    TurnRecorded,
    TurnsRewound,
    ValueDeleted,
    ValuesCleared,
    ValueSet,
)
from mnemolog.domain.message import Role
from mnemolog.domain.session import Span, session_stream, without
from mnemolog.domain.store_layout import DATABASE_PARTS
from mnemolog.domain.switching import agent_stream
from mnemolog.domain.values import ORIGIN, to_datetime
from mnemolog.projections.quarantine import Drift
from mnemolog.projections.recall import text_search
from mnemolog.projections.sql import queries
from mnemolog.projections.sql.conversation_views import CHOICES, CREATE_TEXT_INDEX, TEXT_INDEX, TURNS, Views
from mnemolog.projections.sql.database import ProjectionDatabase, fetch
from mnemolog.projections.sql.opening import open_engine
from mnemolog.projections.sql.position_blocks import BLOCKS
from mnemolog.projections.sql.queries import SPANS_INLINE_MAX, Filters, positions_in
from mnemolog.projections.sql.words import stems_of, terms_of
from tests.support import EPOCH_2024, blocks_of, found_by_text, positions_left, projections_of, started, turn

BRANCH = SessionStarted(title="b", agent="ada", scope="acme", parent="a", branched_at=2, reason="branch")
WORKING_MEMORY = (
    ValueSet(key="k", value=None),
    ValueDeleted(key="k"),
    ValuesCleared(),
    TaskChanged(description="move"),
    NoteAdded(text="remember"),
    NotesCleared(),
    CheckpointCreated(id="c", name="before"),
    CheckpointRestored(id="c", position=9),
    CheckpointDeleted(id="c"),
    TurnsRewound(to=2),
)


def append(store, *events):
    """Append events to the stream of session `a`, or to the stream named before the event. Return positions."""
    pairs = [event if isinstance(event, tuple) else (session_stream("a"), event) for event in events]
    return store.parts.log.appends.transact(lambda tx: [tx.append(stream, event).position for stream, event in pairs])


@pytest.fixture
def history(store):
    """A session with every kind of event, a branch of it, and an agent that switched."""
    store.start_session("a", agent="ada", scope="acme")
    append(store, turn("first"), *WORKING_MEMORY, turn("second"))
    append(store, (session_stream("b"), BRANCH), (session_stream("b"), turn("other way")))
    append(
        store,
        (agent_stream("ada"), SessionSwitched(from_=None, to="a", reason="new")),
        (agent_stream("bob"), SessionSwitched(from_=None, to="b", reason="resume")),
        (agent_stream("ada"), SessionSwitched(from_="a", to="b", reason="branch")),
        (MODELS_STREAM, activated("one")),
        (MODELS_STREAM, activated("two", every=8)),
    )
    return store


def activated(model, *, every=1):
    return ModelActivated(
        fingerprint=sha256(model.encode()).hexdigest(), model=model, dimension=4, retain_every_n_turns=every
    )


def test_a_branch_says_where_it_comes_from(history):
    """In the list of sessions and in a replay, which reads what it does not show, as verification does."""
    assert history.verify().sound
    replayed = history.replay()
    assert [[t.text for t in session.turns] for session in replayed.sessions] == [["first", "second"], ["other way"]]
    assert [session.session for session in history.replay(session="b").sessions] == ["b"]
    for found in (history.sessions(), replayed.sessions):
        assert [(s.session, s.parent, s.branched_at, s.reason) for s in found] == [
            ("a", None, None, "new"),
            ("b", "a", 2, "branch"),
        ]


def test_the_last_position_moves_with_every_event_of_the_session(history):
    """Whatever kind it is; turns alone are counted."""
    session, _ = history.sessions()
    assert (session.last_position, session.turns) == (len(WORKING_MEMORY) + 3, 2)
    (last,) = append(history, NoteAdded(text="more"))
    first, second = history.sessions()
    assert first.last_position == last > second.last_position


@pytest.mark.parametrize("one_batch", [True, False])
def test_a_resumed_session_is_open_again(store, one_batch):
    """In the order of the events, however they come; an end after it ends it again."""
    store.start_session("a")
    for event, ended in ((SessionEnded(), True), (SessionResumed(), False), (SessionEnded(), True)):
        append(store, event)
        if not one_batch:
            assert (store.sessions()[0].ended_at is not None) is ended
        assert (store.replay().sessions[0].ended_at is not None) is ended
    last = list(store.events())[-1]
    assert store.sessions()[0].ended_at == to_datetime(last.recorded_at)
    append(store, SessionResumed())
    assert store.sessions()[0].ended_at is None


def active(store, upto=None):
    found = projections_of(store).models.active(upto=upto)
    return None if found is None else (found.model, found.fingerprint, found.position, found.retain_every_n_turns)


def test_the_active_model_is_the_last_that_was_activated_at_an_offset(history):
    """None before the first; an activation outside the stream of models counts for nothing."""
    head = history.head().position
    one, two = (sha256(model.encode()).hexdigest() for model in ("one", "two"))
    expected = {head - 2: None, head - 1: ("one", one, head - 1, 1), head: ("two", two, head, 8)}
    assert {upto: active(history, upto) for upto in expected} == expected
    append(history, activated("three"))
    assert active(history) == expected[head]
    assert {upto: active(history, upto) for upto in reversed(expected)} == expected


def dump(views):
    with views.database.reading() as connection:
        tables = ("sessions", "turns", "speakers", "tracking")
        return [connection.exec_driver_sql(f"SELECT * FROM {table} ORDER BY 1").all() for table in tables]


def test_events_of_every_kind_are_rebuilt_with_the_same_result(history):
    """Views are a function of the log."""
    views = projections_of(history).current_views()
    before = dump(views)
    head = history.head().position
    with views.database.writing() as connection:
        connection.exec_driver_sql("INSERT INTO speakers VALUES ('ghost', '', 'ghost', 999)")
    views.rebuild(upto=head)
    assert dump(views) == before
    with views.database.writing() as connection:
        views._start_over(connection)
    views.batch_max = 1
    views.catch_up(upto=head)
    assert dump(views) == before


OLD_TABLES = """
CREATE TABLE tracking (name TEXT NOT NULL, position INTEGER NOT NULL, log_id TEXT DEFAULT '' NOT NULL,
    digest BLOB DEFAULT x'' NOT NULL, PRIMARY KEY (name)) WITHOUT ROWID, STRICT;
CREATE TABLE sessions (session TEXT NOT NULL PRIMARY KEY, name TEXT NOT NULL) STRICT;
CREATE TABLE turns (position INTEGER NOT NULL PRIMARY KEY, session TEXT NOT NULL, text TEXT NOT NULL) STRICT;
INSERT INTO sessions VALUES ('a', 'a');
INSERT INTO turns VALUES (2, 'a', 'outdated');
"""
"""Tables of other columns, with a turn that the log does not tell."""


def test_views_of_an_older_version_are_rebuilt_automatically(history, folder):
    """Their tag says that they are at the head of this very log; the version in their name decides."""
    head, log_id = history.head(), history.parts.log.log_id
    expected = dump(projections_of(history).current_views()), history.recall("first", mode="text").hits
    history.close()
    path = folder / "projections" / "views.db"
    for suffix in ("", *DATABASE_PARTS):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    old = dbapi2.connect(str(path))
    old.executescript(OLD_TABLES)
    tag = ("views/1", head.position, log_id, bytes.fromhex(head.digest))
    old.execute("INSERT INTO tracking VALUES (?, ?, ?, ?)", tag)
    old.commit()
    old.close()
    with MemoryStore.open(folder, model=None) as again:
        status = again.status()
        assert (status.views.state, status.views.behind_events) == ("missing", head.position)
        assert again.recall("outdated", mode="text").hits == ()
        assert (dump(projections_of(again).current_views()), again.recall("first", mode="text").hits) == expected
        assert again.status().quarantine.items == 0


def test_views_that_another_process_has_filled_meanwhile_are_kept(history, monkeypatch):
    """Two processes open old views at once: the second must not empty what the first one has just read."""
    from mnemolog.projections.sql import database as module

    filled = projections_of(history).current_views()
    before = dump(filled)
    answers = iter([(Drift.MISSING, ORIGIN)])
    honest = module.state_of
    monkeypatch.setattr(module, "state_of", lambda *asked: next(answers, None) or honest(*asked))
    assert Views(filled.database, history.parts.log).position() == history.head().position
    assert dump(filled) == before


def test_a_rebuild_never_goes_back_behind_what_was_read(store, session):
    """Another process that has read a position and applies what is behind it must not leave a gap."""
    for n in range(5):
        session.record("user", f"turn{n}")
    views = projections_of(store).current_views()
    read_to = views.position()
    views.rebuild(upto=2)
    assert views.position() == read_to
    assert [hit.text for hit in store.recall("turn4", mode="text").hits] == ["turn4"]


def fill(store, count=40, *, start=0):
    """Record turns into one session."""
    try:
        session = store.session("s")
    except Exception:
        session = store.start_session("s", scope="acme")
    return [session.record("user", f"note number{n} on topic{n % 5}") for n in range(start, start + count)]


@pytest.fixture
def views(store, folder, log):
    """Views of `log`, caught up with a few turns."""
    fill(store)
    path = folder / "own-views.db"
    engine = open_engine(path)
    views = Views(ProjectionDatabase(engine, path), log)
    views.catch_up()
    yield views
    engine.dispose()


def dump_of(views):
    """Everything the views hold."""
    with views.database.reading() as connection:
        return [connection.exec_driver_sql(f"SELECT * FROM {t}").all() for t in ("sessions", "turns", "tracking")]


def test_events_before_an_unreadable_one_are_saved(views, store, log, monkeypatch):
    """Many batches share a transaction, but none is lost to a later one."""
    fill(store, 30, start=100)
    readable, head = views.position() + 20, log.head().position

    def damaged(**asked):
        for events in log.read(**asked):
            if events[-1].position > readable:
                raise errors.UndecodableEvent(position=readable + 1, topic="x", why="damaged")
            yield events

    class Damaged:
        head, digest_at, log_id = log.head, log.digest_at, log.log_id
        read = staticmethod(damaged)

    views.log, views.batch_max = Damaged(), 5
    with pytest.raises(errors.UndecodableEvent):
        views.catch_up()
    assert views.position() == readable
    views.log = log
    assert views.catch_up() == head


def test_position_and_data_are_saved_together_or_not_at_all(views, store, log, monkeypatch):
    """A failure half way leaves neither."""
    before = dump_of(views)
    fill(store, 3, start=100)
    with monkeypatch.context() as patched:
        patched.setattr("mnemolog.projections.sql.database.track", lambda *_: (_ for _ in ()).throw(OSError("disk")))
        with pytest.raises(OSError, match="disk"):
            views.catch_up()
    assert dump_of(views) == before
    assert views.catch_up() == log.head().position


def test_driver_errors_become_errors_of_mnemolog(views):
    """Also where it is asked without SQLAlchemy, as a recall does."""
    with pytest.raises(errors.ProjectionUnreadable), views.database.reading() as connection:
        fetch(connection, "SELECT * FROM no_such_table")


def test_views_of_another_log_are_rebuilt_on_open(views, tmp_path, log):
    """The tag decides, not the file's name or age."""
    views.database.engine.dispose()
    with MemoryStore.open(tmp_path / "other", model=None) as other:
        other.start_session("x").record("user", "only here")
        engine = open_engine(views.database.path)
        mine = Views(ProjectionDatabase(engine, views.database.path), other.parts.log)
        assert mine.position() == 0
        mine.catch_up()
        with mine.database.reading() as connection:
            assert connection.execute(sa.select(TURNS.c.text)).scalars().all() == ["only here"]
        engine.dispose()


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=200))
def test_no_query_is_a_syntax_error(query):
    """Whatever somebody types is words, not FTS5; and one who types a whole turn finds it."""
    terms = terms_of(query)
    engine = sa.create_engine("sqlite://", module=__import__("pysqlite3").dbapi2)
    with engine.connect() as connection:
        for made in CREATE_TEXT_INDEX:
            connection.exec_driver_sql(made)
        BLOCKS.create(connection)
        CHOICES.create(connection)
        connection.exec_driver_sql(
            f"INSERT INTO {TEXT_INDEX} (rowid, body) VALUES (?, ?)", (7, " ".join(stems_of(query)))
        )
        found = text_search.search(connection, terms, k=5)
        assert found.positions == ([7] if terms else [])
        held = dict(found.counts.holding)  # A turn with a whole name is not counted for its parts.
        assert held.items() <= dict.fromkeys(terms, 1).items()
        assert bool(held) == bool(terms)
    engine.dispose()


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


@pytest.fixture(scope="module")
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


@pytest.mark.usefixtures("small_blocks")
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


@pytest.mark.usefixtures("small_blocks")
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


@pytest.mark.usefixtures("small_blocks")
def test_no_spans_are_not_the_same_as_no_filter():
    """An empty tuple hides everything, None hides nothing."""
    with reading(MemoryLog([("a", "tea")])) as connection:
        for spans, expected in (((), []), (None, [5])):
            filters = Filters(spans=spans)
            assert filters.leave_everything is (spans is None)
            assert positions_left(connection, filters) == expected
            assert found_by_text(connection, ["tea"], k=5, filters=filters) == expected
        assert queries.turns_in(connection, (), limit=5) == []


@pytest.mark.usefixtures("small_blocks")
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


@pytest.mark.usefixtures("small_blocks")
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


@pytest.mark.usefixtures("small_blocks")
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


@pytest.mark.usefixtures("small_blocks")
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


@pytest.fixture
def listed(tmp_path):
    """Sessions of two scopes and two agents whose turns alternate, one with a forgotten turn, one resumed."""
    with MemoryStore.open(tmp_path / "store", model=None) as opened:
        names = [f"s{number}" for number in range(7)]
        for number, name in enumerate(names):
            scope, agent = ("acme" if number % 2 else "acme/support"), ("ann" if number % 3 else "bob")
            opened.session(name, scope=scope, agent=agent, title=f"Title {number % 2}")
            for earlier in names[: number + 1]:
                opened.record(earlier, "user", f"{name} in {earlier}")
        opened.session("s1").branch("s1b")
        opened.session("s2").end()
        opened.record("s0", "user", "the last one")
        opened.forget(positions=[opened.turns("s0")[1].position])
        yield opened


def expected(store, position):
    """The sessions that had started at a position, last first, with the numbers of their turns: one by one."""
    return [
        (item.session, sum(turn.position <= position for turn in store.turns(item.session)))
        for item in reversed(store.sessions())
        if item.started_position <= position
    ]


def test_a_list_as_of_a_position_is_that_of_then(listed):
    """At every position: who had started, and how many turns each session had."""
    for position in range(listed.head().position + 1):
        found = listed.parts.session_list.page(as_of=position, limit=100)
        assert [(item.session, item.turns) for item in found] == expected(listed, position), position
        assert all(item.last_position <= position for item in found)


def test_a_session_is_open_before_it_ends(listed):
    """A session that ended later is open as of an earlier position."""
    ended = next(moment.position for moment in listed.audit.timeline() if moment.topic == "session.ended.v1")
    (before,) = [item for item in listed.parts.session_list.page(as_of=ended - 1, limit=9) if item.session == "s2"]
    (after,) = [item for item in listed.parts.session_list.page(as_of=ended, limit=9) if item.session == "s2"]
    assert before.ended_at is None
    assert after.ended_at is not None


def test_pages_of_sessions_follow_each_other_both_ways(listed):
    """Backwards with `before`, forwards with `after`: each session on one page."""
    pages, everything = listed.parts.session_list, [item.session for item in reversed(listed.sessions())]
    seen, before = [], None
    while found := pages.page(before=before, limit=3):
        seen += [item.session for item in found]
        before = found[-1].started_position
    assert seen == everything
    later = pages.page(after=before - 1, limit=3)
    assert [item.session for item in later] == everything[::-1][:3]


def test_a_list_of_sessions_is_filtered_by_scope_agent_and_title(listed):
    """The filters are those of `sessions`, also where a page needs many rows."""
    for scope, how in (
        ("acme/support", {}),
        ("", {"agent": "bob"}),
        ("", {"title": "TITLE 1"}),
        ("acme", {"title": "0"}),
    ):
        wanted = [item.session for item in reversed(listed.sessions(scope=scope, **how))]
        pages = (listed.within(scope) if scope else listed).parts.session_list
        assert [item.session for item in pages.page(**how, limit=100)] == wanted, (scope, how)
        assert [item.session for item in pages.page(**how, limit=1)] == wanted[:1], (scope, how)


@pytest.mark.parametrize("by", ["scope", "agent"])
def test_numbers_by_scope_and_by_agent_are_those_of_then(listed, by):
    """At every position the groups add up to the list."""
    for position in range(listed.head().position + 1):
        page = listed.parts.session_list.page(as_of=position, limit=100)
        groups = listed.parts.session_list.groups(by, as_of=position)
        assert [group.name for group in groups] == sorted({getattr(item, by) for item in page})
        for group in groups:
            of_it = [item for item in page if getattr(item, by) == group.name]
            assert (group.sessions, group.turns) == (len(of_it), sum(item.turns for item in of_it)), position


def names(found):
    return [item.session for item in found.sessions]


def test_a_family_is_a_session_with_all_that_branch_from_its_root(listed):
    """Related are those with the same root; a session without branches is a family of its own."""
    pages = listed.parts.session_list
    assert names(pages.families(session="s1b", limit=9)) == ["s1", "s1b"]
    assert names(pages.families(session="s1", limit=9)) == ["s1", "s1b"]
    assert names(pages.families(session="s3", limit=9)) == ["s3"]
    with pytest.raises(errors.UnknownSession):
        pages.families(session="nothing", limit=9)


def test_families_come_with_the_newest_first_and_as_of_then(listed):
    """Only sessions with branches are listed; before a branch there is none."""
    pages = listed.parts.session_list
    started = {item.session: item.started_position for item in listed.sessions()}
    listed.session("s3").branch("s3b").branch("s3c")
    assert names(pages.families(limit=100)) == ["s1", "s3", "s1b", "s3b", "s3c"]
    first = pages.families(limit=1)
    assert names(first) == ["s3"]
    assert names(pages.families(before=first.more, limit=9)) == ["s1", "s1b"]
    assert names(pages.families(as_of=started["s1b"], limit=9)) == ["s1", "s1b"]
    assert names(pages.families(as_of=started["s1b"] - 1, limit=9)) == []


def test_a_bound_store_lists_its_own_sessions_only(listed):
    """A page of a store bound to a scope has no session outside of it, and the family of one is refused."""
    with MemoryStore.open(listed.path, model=None, scope="acme/support") as bound:
        found = bound.parts.session_list
        assert {item.scope for item in found.page(limit=100)} == {"acme/support"}
        assert [group.name for group in found.groups("scope")] == ["acme/support"]
        with pytest.raises(errors.UnknownSession):
            found.families(session="s1", limit=9)
        assert names(found.families(limit=9)) == []


def test_turns_are_counted_without_reading_them(listed):
    """The number of turns of a session up to a position takes steps with the logarithm of its length."""
    listed.session("long").record_many([{"role": "user", "text": f"turn {number}"} for number in range(2_000)])
    positions = [turn.position for turn in listed.turns("long", limit=2_000)]
    with listed.parts.projections.current_views().database.reading() as connection:
        for number in (0, 1, 999, 2_000):
            upto = positions[number - 1] if number else positions[0] - 1
            steps = []
            driver = connection.connection.driver_connection
            driver.set_progress_handler(lambda done=steps: done.append(1), 1)
            assert queries.turns_until(connection, "long", upto) == number
            driver.set_progress_handler(None, 1)
            assert len(steps) < 2_000
