"""History cannot be changed through the library, and hardly past it."""

from contextlib import closing

import pytest
from pysqlite3 import dbapi2

from mnemolog.domain import errors
from mnemolog.infra import sqlite
from mnemolog.infra.log.open import open_log
from mnemolog.infra.log.sqlite.engine import LOG_FILE
from mnemolog.projections.history.verify import verify
from tests.support import append, read_all, settings_of, start

INSERT = "INTO events (position, stream, version, topic, state, key, recorded_at, digest) "
FORGED = "VALUES ({}, '{}', {}, 'turn.recorded.v1', x'80', {}, 0, zeroblob(32))"

REWRITING = {
    "update a state": "UPDATE events SET state = x'80' WHERE position = 2",
    "update nothing but the time": "UPDATE events SET recorded_at = recorded_at + 1",
    "update a digest": "UPDATE events SET digest = zeroblob(32) WHERE position = 3",
    "update or replace": "UPDATE OR REPLACE events SET version = 2 WHERE version = 3",
    "update or ignore": "UPDATE OR IGNORE events SET version = 9 WHERE version = 3",
    "update from": "UPDATE events SET key = o.key FROM events o WHERE o.position = events.position + 1",
    "delete the tail": "DELETE FROM events WHERE position = 4",
    "delete one": "DELETE FROM events WHERE position = 2",
    "delete all": "DELETE FROM events",
    "replace by position": "INSERT OR REPLACE " + INSERT + FORGED.format(2, "session/x", 1, "NULL"),
    "replace by version": "INSERT OR REPLACE " + INSERT + FORGED.format(9, "session/s", 2, "NULL"),
    "replace by key": "INSERT OR REPLACE " + INSERT + FORGED.format(9, "session/s", 9, "'k1'"),
    "replace": "REPLACE " + INSERT + FORGED.format(2, "session/s", 2, "NULL"),
    "upsert": "INSERT "
    + INSERT
    + FORGED.format(2, "session/s", 2, "NULL")
    + " ON CONFLICT (position) DO UPDATE SET state = excluded.state",
    "upsert by key": "INSERT "
    + INSERT
    + FORGED.format(9, "session/s", 9, "'k1'")
    + " ON CONFLICT (stream, key) WHERE key IS NOT NULL DO UPDATE SET state = excluded.state",
    "update the identity": "UPDATE log SET log_id = 'other'",
    "delete the identity": "DELETE FROM log",
    "replace the identity": "INSERT OR REPLACE INTO log (id, log_id, format, created_at) VALUES (1, 'other', 1, 0)",
}
"""Refused by the file itself, whatever connection asks."""

UNLOCKING = {
    "drop a trigger": "DROP TRIGGER events_refuse_update",
    "drop the events": "DROP TABLE events",
    "drop the identity": "DROP TABLE log",
    "drop an index": "DROP INDEX events_key",
    "rename the events": "ALTER TABLE events RENAME TO old_events",
    "rename a column": "ALTER TABLE events RENAME COLUMN state TO condition",
    "add a column": "ALTER TABLE events ADD COLUMN more TEXT",
    "drop a column": "ALTER TABLE events DROP COLUMN recorded_at",
    "writable schema": "PRAGMA writable_schema=ON",
    "writable schema as a call": "PRAGMA writable_schema(1)",
    "recursive triggers": "PRAGMA recursive_triggers=OFF",
    "unsynced writes": "PRAGMA synchronous=OFF",
    "another journal": "PRAGMA journal_mode=DELETE",
    "another schema version": "PRAGMA schema_version=1",
    "another program's file": "PRAGMA application_id=1",
    "ignored checks": "PRAGMA ignore_check_constraints=ON",
    "another user version": "PRAGMA user_version=5",
    "edit the schema": "UPDATE sqlite_master SET sql = '' WHERE name = 'events_refuse_update'",
    "delete from the schema": "DELETE FROM sqlite_master WHERE type = 'trigger'",
    "take numbers back": "UPDATE sqlite_sequence SET seq = 1",
    "forget numbers": "DELETE FROM sqlite_sequence",
    "invent numbers": "INSERT INTO sqlite_sequence (name, seq) VALUES ('events', 1000)",
    "swallow events": "CREATE TRIGGER swallow BEFORE INSERT ON events BEGIN SELECT RAISE(IGNORE); END",
    "swallow events for this connection": (
        "CREATE TEMP TRIGGER swallow BEFORE INSERT ON main.events BEGIN SELECT RAISE(IGNORE); END"
    ),
    "hide the events": "CREATE TEMP VIEW events AS SELECT * FROM main.events WHERE position < 2",
    "shadow the events": "CREATE TEMP TABLE events (position INTEGER)",
}
"""Refused by our connections: what would take the triggers away, or around them."""


@pytest.fixture
def log(log):
    """A log of four events."""
    log.appends.transact(start("s"))
    log.appends.transact(append("s", "one", "two", "three", keys=["k1", "k2", None]))
    return log


@pytest.fixture
def unchanged(log):
    """Checks at the end that the events are what they were, that the audit is sound, that appending works."""
    before, head = read_all(log), log.head()
    yield
    assert read_all(log) == before
    assert log.head() == head
    assert verify(log).findings == ()
    assert log.appends.transact(append("s", "after")) == [5]
    assert verify(log).sound


def test_our_connections_refuse_what_changes_history_or_its_guard(log, unchanged):
    """Whatever SQL reaches a connection of the library, through the driver's own cursor too."""
    for name, statement in (REWRITING | UNLOCKING).items():
        with log.engine.pool.connect() as connection:
            driver = connection.connection.driver_connection
            before = settings_of(driver)
            with pytest.raises(Exception, match=r"append-only|not authorized|may not be modified") as caught:
                connection.exec_driver_sql(statement)
            if "may not be modified" not in str(caught.value):
                assert isinstance(sqlite.map_error(caught.value, log.path), errors.AppendOnly), name
            assert settings_of(driver) == before, name
            connection.rollback()
            if name in REWRITING:
                with pytest.raises(dbapi2.DatabaseError, match=r"append-only|not authorized"):
                    driver.executescript(statement)


def test_the_file_refuses_a_foreign_connection(log, unchanged):
    """UPDATE and DELETE always; what replaces a row, once the connection asks for recursive triggers."""
    for name, statement in REWRITING.items():
        with closing(dbapi2.connect(log.path, isolation_level=None)) as foreign:
            if "replace" not in name or name == "update or replace":
                with pytest.raises(dbapi2.IntegrityError, match="append-only"):
                    foreign.execute(statement)
            foreign.execute("PRAGMA recursive_triggers=ON")
            with pytest.raises(dbapi2.IntegrityError, match="append-only"):
                foreign.execute(statement)


def test_an_event_put_in_by_hand_is_noticed(log):
    """An INSERT past the log is no change of history; it is not linked, so the audit names it."""
    with log.engine.pool.connect() as connection:
        connection.exec_driver_sql("INSERT " + INSERT + FORGED.format(5, "session/s", 5, "NULL"))
    found = verify(log)
    assert not found.sound
    assert {finding.position for finding in found.findings} == {5}


def test_an_event_put_in_by_hand_without_a_whole_digest_is_refused(log, unchanged):
    """The schema asks for 32 bytes."""
    with log.engine.pool.connect() as connection, pytest.raises(Exception, match="CHECK"):
        connection.exec_driver_sql(
            "INSERT " + INSERT + FORGED.format(5, "session/s", 5, "NULL").replace("zeroblob(32)", "zeroblob(31)")
        )


def test_a_log_that_lost_its_triggers_takes_no_more_events(log, folder, clock):
    """A file that anybody could change is not written to: opening it for an append says so."""

    log.close()
    with closing(dbapi2.connect(folder / LOG_FILE, isolation_level=None)) as foreign:
        foreign.execute("DROP TRIGGER events_refuse_delete")
    with closing(open_log(folder, clock=clock, create=False)) as again:
        with pytest.raises(errors.MnemologError, match="events_refuse_delete"):
            again.appends.transact(append("s", "no"))
        assert again.head().position == 4
        assert [finding.kind for finding in verify(again).findings] == ["unprotected"]


def test_our_connections_still_read_check_and_back_up(log, tmp_path, unchanged):
    """The guard is in nobody's way who reads."""
    with log.engine.pool.connect() as connection:
        driver = connection.connection.driver_connection
        assert driver.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert driver.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[0] == 0
        with closing(dbapi2.connect(tmp_path / "copy.db")) as copy:
            driver.backup(copy)
            assert copy.execute("SELECT count(*) FROM events").fetchone() == (4,)
