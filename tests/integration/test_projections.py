"""Views, embeddings and vectors: disposable, tagged, never trusted beyond their tag."""

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from mnemolog import MemoryStore
from mnemolog.adapters.support.store_access import log_of
from mnemolog.domain import errors
from mnemolog.projections.recall import text_search
from mnemolog.projections.sql.conversation_views import CHOICES, CREATE_TEXT_INDEX, TEXT_INDEX, TURNS, Views
from mnemolog.projections.sql.database import ProjectionDatabase, fetch
from mnemolog.projections.sql.opening import open_engine
from mnemolog.projections.sql.position_blocks import BLOCKS
from mnemolog.projections.sql.words import stems_of, terms_of


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


def dump(views):
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
    before = dump(views)
    fill(store, 3, start=100)
    with monkeypatch.context() as patched:
        patched.setattr("mnemolog.projections.sql.projection.track", lambda *_: (_ for _ in ()).throw(OSError("disk")))
        with pytest.raises(OSError, match="disk"):
            views.catch_up()
    assert dump(views) == before
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
        mine = Views(ProjectionDatabase(engine, views.database.path), log_of(other))
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
