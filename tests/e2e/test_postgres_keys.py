"""The keys of an encrypted log in PostgreSQL, as several nodes use them."""

import re
import time
import uuid
from pathlib import Path
from urllib.parse import quote

import pytest

from mnemolog import MemoryStore, copy_store, errors, restore_backup
from mnemolog.infra import postgres
from mnemolog.infra.keys import postgres_keys
from mnemolog.infra.keys.postgres_keys import ROLE
from mnemolog.infra.log.open import prepare_database
from mnemolog.infra.log.postgres import engine as log_database
from mnemolog.infra.log.postgres.address import ADDRESS_FILE
from mnemolog.infra.log.postgres.schema import WRITER
from tests.postgres import connect, database_on
from tests.support import in_thread

pytestmark = pytest.mark.local


@pytest.fixture
def node(opened):
    """Open a node of the log, without a model."""
    return lambda folder, **options: opened(folder, model=None, **options)


@pytest.fixture
def apart(postgres_url):
    """The URL of another database on the same server, for keys."""
    with database_on(postgres_url) as url:
        prepare_database(postgres_url, keys=url)
        yield url


@pytest.fixture
def user(postgres_url):
    """Make users with roles: the URL with which they connect."""
    with connect(postgres_url) as database:
        made = []

        def user(*roles):
            made.append(f"user_{uuid.uuid4().hex}")
            database.execute(f"CREATE ROLE {made[-1]} IN ROLE {', '.join(roles)}")
            separator = "&" if "?" in postgres_url else "?"
            return f"{postgres_url}{separator}options={quote(f'-c role={made[-1]}')}"

        yield user
        for role in made:
            database.execute(f"DROP ROLE {role}")


def log_id_of(store):
    return store.status().log_id


def test_two_nodes_share_an_encrypted_log_and_what_one_forgets_none_can_read(node, tmp_path):
    """What one records the other recalls; there is no file of keys on either. Also a key in memory is gone."""
    with node("a") as one, node("b") as other:
        turn = one.session("trip").record("user", "my passport number is 123")
        assert other.recall("passport").hits[0].text == "my passport number is 123"
        assert one.verify(contents=True).sound
        assert one.forget(positions=[turn.position], reason="asked for").complete
        pages = other.parts.log.read_stream("session/trip", upto=other.head().position)
        assert "passport" not in repr([recorded.event for page in pages for recorded in page])
        later = other.session("trip").record("user", "the ferry leaves at noon")
        assert [turn.text for turn in one.turns("trip")] == ["the ferry leaves at noon"]
        one.forget(session="trip")
        assert later.position in [item.position for item in other.audit.forgotten()]
    assert not list(tmp_path.glob("*/keys.db*"))


def test_a_session_continues_while_another_node_forgets_it(node):
    """Keys in memory of versions that are still to come stay right, append after append."""
    with node("a") as one, node("b") as other:
        for n in range(40):  # More than are derived together.
            other.session("trip").record("user", f"turn {n}")
            if n % 10 == 9:
                one.forget(session="trip")
        one.session("trip").record("user", "kept")
        other.session("trip").record("user", "kept too")
        for store in (one, other):
            assert [turn.text for turn in store.turns("trip")] == ["kept", "kept too"]
            assert store.verify(contents=True).sound


def test_appends_of_one_node_while_another_forgets_are_never_lost_or_readable_afterwards(node):
    """At any moment: what was recorded before a request is forgotten, what was recorded after it can be read."""
    with node("a") as one, node("b") as other:
        one.session("trip").record("user", "first")

        def record():
            return [other.session("trip").record("user", f"turn {n}").position for n in range(150)]

        recording, requests = in_thread(record), []
        while recording.running:
            requests.append(one.forget(session="trip").position)
        written = [position for position in recording.result() if position is not None]
        last = max(position for position in requests if position is not None)
        kept = [position for position in written if position > last]
        for store in (one, other):
            assert store.verify(contents=True).sound
            assert [turn.position for turn in store.turns("trip")] == kept
        assert len(requests) > 1


def test_nodes_that_begin_a_session_at_once_share_its_keys(node):
    """Whichever makes them first has made them for both."""
    with node("a") as one, node("b") as other:
        for name in ("trip", "tour", "move"):
            begun = [
                in_thread(lambda s=s, name=name: s.session(name).record("user", s.path.name)) for s in (one, other)
            ]
            assert len({turn.result().position for turn in begun}) == 2
            for store in (one, other):
                assert sorted(turn.text for turn in store.turns(name)) == ["a", "b"]


def test_nodes_that_create_a_log_at_once_end_with_one_log_and_its_keys(node, postgres_url, monkeypatch):
    """The one that comes second drops the keys it made, and both read and write."""
    made = postgres_keys.create

    def overtaken(driver, **how):
        monkeypatch.setattr(postgres_keys, "create", made)
        with node("b") as other:
            other.session("trip").record("user", "the ferry leaves at noon")
        return made(driver, **how)

    with connect(postgres_url) as database:
        (before,) = database.execute("SELECT count(*) FROM mnemolog_keys.meta").fetchone()
        monkeypatch.setattr(postgres_keys, "create", overtaken)
        with node("a") as one:
            assert [turn.text for turn in one.turns("trip")] == ["the ferry leaves at noon"]
            one.session("trip").record("user", "and comes back at six")
        assert database.execute("SELECT count(*) FROM mnemolog_keys.meta").fetchone() == (before + 1,)


def test_a_creation_that_is_killed_behind_its_keys_is_repeated(node, monkeypatch):
    """Keys that no log has are never used; the next creation makes others."""

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(log_database, "_create", killed)
        with pytest.raises(KeyboardInterrupt):
            node("a")
    with node("a") as one, node("b") as other:
        one.session("trip").record("user", "the ferry leaves at noon")
        assert [turn.text for turn in other.turns("trip")] == ["the ferry leaves at noon"]


def test_keys_can_be_in_another_database(node, apart, postgres_url, tmp_path):
    """The folder notes it; without the other database nothing can be read, and the error says where to look."""
    with node("a", keys=apart) as one:
        one.session("trip").record("user", "the ferry leaves at noon")
        log_id = log_id_of(one)
    assert "keys = " in (tmp_path / "a" / ADDRESS_FILE).read_text()
    for url, count in ((postgres_url, 0), (apart, 1)):
        with connect(url) as database:
            query = "SELECT count(*) FROM mnemolog_keys.nodes WHERE log_id = %s"
            assert (database.execute(query, (log_id,)).fetchone()[0] > 0) == count
    with MemoryStore.open(tmp_path / "a", model=None) as one, node("b", keys=apart) as other, node("a") as again:
        for store in (one, other, again):
            assert [turn.text for turn in store.turns("trip")] == ["the ferry leaves at noon"]
        assert one.forget(session="trip").complete
        assert f", keys in postgresql:///{apart.partition('///')[2].partition('?')[0]}" in one.status().database
    with node("c") as lost:
        with pytest.raises(errors.KeysMissing, match=f"none of log {log_id}") as caught:
            list(lost.events())
        assert "`keys`" in caught.value.hint
    with pytest.raises(errors.NotAStore, match=", keys in postgresql:"):
        node("c", keys=apart)


def test_an_agent_needs_both_roles_and_one_without_that_of_keys_reads_no_content(node, user, run, tmp_path):
    """With both it creates an encrypted log, recalls and forgets. The digests are anybody's to check: nothing is
    written, and the message says which role is missing."""
    with node("agent", url=user(WRITER, ROLE)) as agent:
        agent.session("past").record("user", "the tram is late")
        assert agent.recall("tram").hits[0].text == "the tram is late"
        assert agent.forget(session="past").complete
        agent.session("trip").record("user", "the ferry leaves at noon")
        head = agent.head()
    with node("auditor", url=user(WRITER)) as auditor:
        assert auditor.head() == head
        assert auditor.verify().sound
        for call in (
            lambda: list(auditor.events()),
            lambda: auditor.session("trip").record("user", "more"),
            lambda: auditor.session("new"),
            lambda: auditor.forget(session="trip"),
            lambda: auditor.verify(contents=True),
        ):
            with pytest.raises(errors.KeysMissing, match=r"needs the role mnemolog_keys.*permission denied") as caught:
                call()
            assert f"grant the role {ROLE}" in caught.value.hint
        assert auditor.head() == head
        assert auditor.backup(tmp_path / "backup").keys is None
        with pytest.raises(errors.LogDamaged, match="needs the role mnemolog_keys"):
            auditor.backup(tmp_path / "with keys", keys=tmp_path / "keys")
    restore_backup(tmp_path / "backup", tmp_path / "restored", keys=tmp_path / "agent")
    ran = run("doctor", tmp_path / "auditor", "--model", "none")
    assert "Grant the role mnemolog_keys" in " ".join(ran.stdout.split())
    assert "keys.db" not in ran.stdout
    assert "grant the role mnemolog_keys" in " ".join(run("status", tmp_path / "auditor").stdout.split())


def test_a_user_without_rights_is_told_what_the_database_refuses(node, user):
    """Nothing was to be written, and the file that names the database is not to blame."""
    node("a").close()
    with pytest.raises(
        errors.StoreNotWritable, match=r"^the database that .* names refuses this: permission den"
    ) as no:
        node("b", url=user(ROLE))
    assert "docs/postgres.md" in no.value.hint


def test_keys_that_are_locked_are_waited_for_once_and_named(node, postgres_url):
    """Not again under the lock of the log, which all others wait for. Sessions whose keys are known continue."""
    with node("a", busy_timeout_s=1.0) as store, connect(postgres_url) as database:
        store.session("trip").record("user", "the ferry leaves at noon")
        database.execute("BEGIN")
        database.execute("SELECT * FROM mnemolog_keys.meta WHERE log_id = %s FOR UPDATE", (log_id_of(store),))
        began = time.monotonic()
        with pytest.raises(errors.LogBusy, match="the keys of the log were locked by another process for 1 s"):
            store.session("new", title="plans")
        assert 1.0 <= time.monotonic() - began < 2.0
        store.session("trip").record("user", "and comes back at six")
        database.execute("ROLLBACK")
        store.session("new", title="plans")


def test_a_user_without_the_role_of_keys_creates_no_encrypted_log(node, user):
    """Its keys would be nowhere."""
    with pytest.raises(errors.StoreNotWritable, match="needs the role mnemolog_keys"):
        node("auditor", url=user(WRITER))
    with node("auditor", url=user(WRITER), encrypt=False) as store:
        store.session("trip").record("user", "in the clear")


DAMAGES = {
    "the row of the log is deleted": "DELETE FROM mnemolog_keys.meta WHERE log_id = %s",
    "a root is deleted": "DELETE FROM mnemolog_keys.nodes WHERE log_id = %s AND stream = 'session/trip'",
    "a node has an impossible depth": "UPDATE mnemolog_keys.nodes SET depth = 77 WHERE log_id = %s",
    "a node has another place": "UPDATE mnemolog_keys.nodes SET depth = 32, prefix = 9 WHERE log_id = %s",
    "the keys have a newer format": "UPDATE mnemolog_keys.meta SET format = 9 WHERE log_id = %s",
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_or_missing_keys_are_missing_and_nothing_counts_as_forgotten(node, postgres_url, damage):
    """The log verifies as before, and takes no content that could never be read."""
    with node("a") as store:
        store.session("trip").record("user", "the ferry leaves at noon")
        head, log_id = store.head(), log_id_of(store)
    with connect(postgres_url) as database:
        assert database.execute(damage, (log_id,)).rowcount
    with node("b") as store:
        assert store.verify().sound
        assert store.status().head == head.position
        for call in (lambda: list(store.events()), lambda: store.record("trip", "user", "more")):
            with pytest.raises(errors.KeysMissing):
                call()
        assert store.head() == head
        assert not store.audit.forgotten()


def test_keys_that_are_lost_while_a_store_is_open_are_missed_at_the_next_read(node, postgres_url):
    """What is in memory is not used once the keys are gone."""
    with node("a") as store:
        store.session("trip").record("user", "the ferry leaves at noon")
        assert list(store.events())
        with connect(postgres_url) as database:
            database.execute("DELETE FROM mnemolog_keys.meta WHERE log_id = %s", (log_id_of(store),))
        with pytest.raises(errors.KeysMissing):
            list(store.events())


def test_a_folder_that_has_a_file_of_keys_is_refused(node, tmp_path):
    """Which keys are those of its log is never guessed."""
    node("a").close()
    MemoryStore.open(tmp_path / "another", model=None).close()
    (tmp_path / "a" / "keys.db").write_bytes((tmp_path / "another" / "keys.db").read_bytes())
    for opening in (lambda: node("a"), lambda: MemoryStore.open(tmp_path / "a", model=None)):
        with pytest.raises(errors.NotAStore, match="has a keys"):
            opening()
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "keys.db").touch()
    with pytest.raises(errors.NotAStore, match="holds files"):
        node("new")


def statements_on(driver, tmp_path, work):
    """The kinds of messages that are sent on a connection during `work`."""
    traced = tmp_path / "trace"
    with traced.open("wb") as file:
        driver.pgconn.trace(file.fileno())
        work()
        driver.pgconn.untrace()
    return [line.split("\t")[3] for line in traced.read_text().splitlines() if line.split("\t")[1] == "F"]


def test_an_append_to_a_known_session_asks_nothing_of_the_keys_and_a_page_of_events_once(node, tmp_path):
    """A key is derived in memory: the one statement is that of the log. Whether keys were destroyed is one query."""
    with node("a") as store:
        trip = store.session("trip")
        trip.record("user", "first")
        log = store.parts.log
        keys, writer = log.keyring.engine._driver, log.appends.connection.driver
        for number in range(70):  # Beyond those that are derived together.
            watched = (keys, writer)[number % 2]
            sent = statements_on(watched, tmp_path, lambda n=number: trip.record("user", f"turn {n}"))
            assert sorted(sent) == ([] if watched is keys else ["Bind", "Describe", "Execute", "Sync"])
        assert len(next(log.read(after=0, upto=51))) == 51
        sent = statements_on(keys, tmp_path, lambda: list(log.read(after=0, upto=51)))
        assert sent.count("Execute") == 1


def test_a_backup_has_the_keys_as_a_file(node, tmp_path):
    """It is restored without PostgreSQL; a restore may also take the keys from the node itself."""
    texts = [f"turn {n}" for n in range(600)]  # More than one page.
    with node("a") as store:
        gone = store.session("trip").record("user", "my passport number is 123")
        for n, text in enumerate(texts):
            store.session("trip").record("user", text, key=str(n) if n % 2 else None)
        store.forget(positions=[gone.position])
        made = store.backup(tmp_path / "backup", keys=tmp_path / "keys")
        store.session("trip").record("user", "later")
        assert store.backup(tmp_path / "again", keys=tmp_path / "keys").keys
    for number, keys in enumerate((tmp_path / "keys", tmp_path / "a")):
        assert restore_backup(tmp_path / "backup", tmp_path / f"r{number}", keys=keys).digest == made.digest
        with MemoryStore.open(tmp_path / f"r{number}", model=None) as store:
            assert [turn.text for turn in store.turns("trip")] == texts
            assert store.verify(contents=True).sound
            assert [item.position for item in store.audit.forgotten()] == [gone.position]


def test_a_copy_brings_the_keys_to_any_place_and_back(node, apart, name, postgres_url, tmp_path):
    """From a file into a database, and from there into a file. What was forgotten since is forgotten there, too."""
    with MemoryStore.open(tmp_path / "memory", model=None) as store:
        store.session("trip").record("user", "my passport number is 123")
        store.session("trip").record("user", "the ferry leaves at noon")
    to = {"log": name, "local": tmp_path / "a", "keys": apart}
    assert copy_store(tmp_path / "memory", postgres_url, **to).keys
    with node("a", keys=apart) as one, connect(apart) as database:
        assert len(one.turns("trip")) == 2
        (root,) = database.execute("SELECT material FROM mnemolog_keys.nodes WHERE log_id = %s", (log_id_of(one),))
        assert bytes(root[0]) in files_of(database)
    with MemoryStore.open(tmp_path / "memory", model=None) as store:
        store.forget(positions=[2])
    assert copy_store(tmp_path / "memory", postgres_url, **to).copied == 4
    with node("a") as one, connect(apart) as database:
        assert [turn.text for turn in one.turns("trip")] == ["the ferry leaves at noon"]
        assert bytes(root[0]) not in files_of(database)
    copy_store(tmp_path / "a", tmp_path / "back")
    with MemoryStore.open(tmp_path / "back", model=None) as store:
        assert [turn.text for turn in store.turns("trip")] == ["the ferry leaves at noon"]
        assert store.verify(contents=True).sound
    with pytest.raises(errors.InvalidInput, match="it is the source"):
        copy_store(tmp_path / "a", postgres_url, log=name, local=tmp_path / "other")


def test_keys_from_an_older_backup_are_destroyed_again(node, tmp_path):
    """The log says what was forgotten: opening a store on any node is enough."""
    with node("a") as one:
        gone = one.session("trip").record("user", "my passport number is 123")
        one.session("trip").record("user", "the ferry leaves at noon")
        keys = one.parts.log.keyring.engine.another()
        keys.copy_to(tmp_path / "older")
        one.forget(positions=[gone.position])
    keys.replace(tmp_path / "older")
    keys.close()
    with node("b") as other:
        assert [turn.text for turn in other.turns("trip")] == ["the ferry leaves at noon"]
        assert other.session("trip").record("user", "and comes back at six")
        assert other.verify(contents=True).sound


def test_a_connection_of_the_keys_that_was_lost_is_made_again(node, postgres_url):
    """A restart of the server is no error of the next read."""
    with node("a") as store:
        store.session("trip").record("user", "the ferry leaves at noon")
        with connect(postgres_url) as database:
            pid = store.parts.log.keyring.engine._driver.info.backend_pid
            database.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))
        assert len(list(store.events())) == 2


def test_init_prepares_both_databases_and_creates_a_store(run, postgres_url, name, tmp_path):
    """The keys are then in the second one; a folder takes no database of keys."""
    with database_on(postgres_url) as logs, database_on(postgres_url) as keys:
        assert "both databases are ready for logs now" in run("init", logs, "--keys", keys).stdout
        assert run("init", logs, "--keys", keys, "--log", name, "--local", tmp_path / "node").returncode == 0
        assert run("record", tmp_path / "node", "trip", "the ferry", "--start").returncode == 0
        with connect(keys) as database:
            assert database.execute("SELECT count(*) FROM mnemolog_keys.nodes").fetchone() == (1,)
        with connect(logs) as database:
            assert database.execute("SELECT to_regnamespace('mnemolog_keys')").fetchone() == (None,)
        ran = run("init", tmp_path / "memory", "--keys", keys)
        assert "--keys: only with the URL of a database" in ran.stderr
        assert not (tmp_path / "memory").exists()
        ran = run("init", logs, "--keys", "elsewhere", "--log", "b", "--local", tmp_path / "b")
        assert "--keys: not the URL of a PostgreSQL database" in ran.stderr


def test_sql_for_both_databases_is_printed(run, postgres_url):
    """For an administrator to read and run: the keys' part is marked where it is for another database."""
    printed = run("init", postgres_url, "--print-sql").stdout
    assert f"CREATE ROLE {ROLE}" in printed
    logs, keys = run("init", postgres_url, "--keys", postgres_url, "--print-sql").stdout.split("-- In the other")
    assert "mnemolog_keys" not in logs
    assert "mnemolog.events" not in keys
    with database_on(postgres_url) as url, connect(url) as database:
        database.execute(printed)
        assert not prepare_database(url)


def files_of(database, relation="mnemolog_keys.nodes"):
    """All files of a database, and of the write-ahead log apart, after what is in memory was written to them."""
    database.execute("CHECKPOINT")
    (folder,) = database.execute("SHOW data_directory").fetchone()
    (path,) = database.execute("SELECT pg_relation_filepath(%s)", (relation,)).fetchone()
    if not Path(folder, path).exists():
        pytest.skip("the server's files are on another machine")
    return b"".join(file.read_bytes() for file in Path(folder, path).parent.iterdir() if file.is_file())


def test_a_forgotten_key_is_in_no_file_of_the_database(node, apart, rng):
    """Neither the node it was derived from nor any copy that moving rows between pages left. The write-ahead log
    and base backups have it until they are gone (docs/keys.md)."""
    with node("a", keys=apart) as store, connect(apart) as database:
        for n in range(120):
            store.session(f"s{n}").record("user", f"turn {n}")
        found = database.execute("SELECT stream, material FROM mnemolog_keys.nodes").fetchall()
        roots = {stream.removeprefix("session/"): bytes(material) for stream, material in found}
        before = files_of(database)
        assert all(material in before for material in roots.values()), "or nothing is tested here"
        gone = rng.sample(sorted(roots), 50)
        assert store.forget(session=gone).complete
        after = files_of(database)
        assert not [name for name in gone if roots[name] in after]
        assert all(roots[name] in after for name in set(roots) - set(gone))


@pytest.mark.parametrize("holding", ["a snapshot", "a lock"])
def test_a_forgetting_that_cannot_wipe_yet_says_so_and_is_completed_later(node, apart, holding):
    """A backup of the keys that is being made keeps what is deleted. No key is readable meanwhile."""
    with node("a", keys=apart, busy_timeout_s=0.3) as store, connect(apart) as database:
        store.session("trip").record("user", "my passport number is 123")
        database.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        table = "nodes" if holding == "a lock" else "meta"
        database.execute(f"SELECT count(*) FROM mnemolog_keys.{table}").fetchone()
        if holding == "a snapshot":
            database.execute("COMMIT AND CHAIN")
            database.execute("SELECT 1").fetchone()
        assert "another process is reading" in store.forget(session="trip").pending
        assert not store.turns("trip")
        assert store.status().forgetting.pending
        database.execute("ROLLBACK")
    with node("a") as store:
        assert not store.status().forgetting.pending


def test_status_and_doctor_say_that_the_database_of_the_keys_does_not_answer(node, run, apart, tmp_path, monkeypatch):
    """The log is there all the same: what needs no content works."""
    monkeypatch.setattr(postgres, "RECONNECT_S", 0.3)
    with node("a", keys=apart) as store:
        store.session("trip").record("user", "the ferry leaves at noon")
    noted = tmp_path / "a" / ADDRESS_FILE
    away = f'keys = "postgresql://nobody@/none?host={tmp_path}"'
    noted.write_text(re.sub("^keys = .*", away, noted.read_text(), flags=re.MULTILINE))
    with MemoryStore.open(tmp_path / "a", model=None) as store:
        assert store.verify().sound
        assert any("does not answer" in warning for warning in store.status().warnings)
        assert [item.what for item in store.admin.doctor().findings if item.severity == "log"] == ["keys"]
        with pytest.raises(errors.LogUnreachable, match="does not answer"):
            list(store.events())
    assert "Check that PostgreSQL runs" in " ".join(run("doctor", tmp_path / "a", "--model", "none").stdout.split())


def test_erasures_that_are_repeated_for_older_keys_purge_an_open_node_again(node, postgres_url, tmp_path):
    """It may have read the content in between, though it had purged its files after the first time."""
    tables = [f"{postgres_keys.SCHEMA}.{name}" for name in ("nodes", "destroyed", "requests")]
    with node("one") as one, connect(postgres_url) as database:
        one.session("secret").record("user", "a heliotrope")
        of = [log_id_of(one)]
        kept = database.execute(f"SELECT * FROM {tables[0]} WHERE log_id = %s", of).fetchall()
        assert one.forget(session="secret").complete
        with database.transaction(), database.cursor() as cursor:
            for table in tables:
                cursor.execute(f"DELETE FROM {table} WHERE log_id = %s", of)
            cursor.executemany(f"INSERT INTO {tables[0]} VALUES ({', '.join(['%s'] * len(kept[0]))})", kept)
            cursor.execute(
                f"UPDATE {postgres_keys.SCHEMA}.meta SET last_change = gen_random_uuid() WHERE log_id = %s", of
            )
        (tmp_path / "views").write_text("a heliotrope")
        assert one.admin.quarantine().add(tmp_path / "views", reason="damaged")
        assert "a heliotrope" in str([item.event for item in one.events()])
        assert one.admin.reapply_erasures(one.audit.erasures()).pending is None
        assert one.admin.quarantine().items() == []
        assert "a heliotrope" not in str([item.event for item in one.events()])
