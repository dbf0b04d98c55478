"""A store whose log is in PostgreSQL, as users open it and as commands find it."""

import re
import shlex

import psycopg
import pytest

from mnemolog import MemoryStore, errors
from mnemolog.infra.log.postgres.address import ADDRESS_FILE
from tests.pages import ROOT, blocks, commands, run_block
from tests.postgres import connect, database_on
from tests.support import HashEncoder

pytestmark = pytest.mark.local

PAGE = "docs/postgres.md"


@pytest.fixture
def local(tmp_path):
    """The local folder of a store."""
    return tmp_path / "node"


def test_a_url_opens_a_store_and_its_local_folder_opens_it_again(postgres_url, name, local):
    """The folder notes where the log is: from then on it is used as any folder of a store."""
    with MemoryStore.open(postgres_url, log=name, local=local, model=HashEncoder(), background=False) as store:
        store.session("trip").record("user", "the ferry leaves at noon", key="1")
        assert store.recall("ferry").hits[0].text == "the ferry leaves at noon"
        head = store.head()
    with MemoryStore.open(local, model=HashEncoder(), background=False) as store:
        assert store.head() == head
        assert store.recall("ferry").hits[0].text == "the ferry leaves at noon"
        assert store.session("trip").record("user", "the ferry leaves at noon", key="1").position == 2
        assert store.replay().digest == head.digest
        assert store.verify().sound
    with MemoryStore.open(postgres_url, log=name, local=local, model=None) as store:
        assert store.head() == head
    with MemoryStore.open(local, model=None, read_only=True) as store:
        assert store.recall("ferry").hits[0].text == "the ferry leaves at noon"
        with pytest.raises(errors.StoreNotWritable):
            store.session("trip").record("user", "and comes back at six")
        assert store.head() == head


def test_the_log_in_the_database_is_whole_without_the_folder(postgres_url, name, local, tmp_path):
    """A node that is thrown away loses projections only; without encryption, any folder continues."""
    with MemoryStore.open(postgres_url, log=name, local=local, model=None, encrypt=False) as store:
        store.session("trip").record("user", "the ferry leaves at noon")
    with MemoryStore.open(postgres_url, log=name, local=tmp_path / "other", model=None) as store:
        assert store.recall("ferry").hits[0].text == "the ferry leaves at noon"
        store.session("trip").record("user", "and comes back at six")
    with MemoryStore.open(local, model=None) as store:
        assert store.recall("comes back").hits[0].position == 3


def test_a_folder_belongs_to_one_log(postgres_url, name, local, tmp_path):
    """Projections of one log are never opened with another."""
    MemoryStore.open(postgres_url, log=name, local=local, model=None).close()
    with pytest.raises(errors.NotAStore, match="not another in"):
        MemoryStore.open(postgres_url, log="another", local=local, model=None)
    MemoryStore.open(tmp_path / "folder", model=None).close()
    with pytest.raises(errors.NotAStore, match="holds files"):
        MemoryStore.open(postgres_url, log=name, local=tmp_path / "folder", model=None)


def test_a_url_needs_a_log_that_is_there_and_a_folder(postgres_url, name, tmp_path, monkeypatch):
    """The error names what is missing, before anything is created. `log` beside a path is a mistake."""
    monkeypatch.chdir(tmp_path)
    for how, field in (
        ({}, "log"),
        ({"log": "acme"}, "local"),
        ({"local": "node"}, "log"),
        ({"log": "", "local": "node"}, "log"),
    ):
        with pytest.raises(errors.InvalidInput) as caught:
            MemoryStore.open(postgres_url, model=None, **how)
        assert caught.value.field == field
    with pytest.raises(errors.InvalidInput, match="only with the URL"):
        MemoryStore.open(tmp_path / "memory", log="acme", model=None)
    with pytest.raises(errors.StoreNotFound, match=name):
        MemoryStore.open(postgres_url, log=name, local="node", model=None, create=False)
    assert not list(tmp_path.iterdir())


@pytest.fixture
def empty(postgres_url):
    """The URL of a database on the same server that is not prepared for logs."""
    with database_on(postgres_url) as url:
        yield url


def test_init_prepares_a_database_and_creates_a_store(run, empty, local):
    """Once by who may create roles; then any command works on the local folder."""
    with pytest.raises(errors.StoreError, match="not prepared") as caught:
        MemoryStore.open(empty, log="acme", local=local, model=None)
    assert "`prepare_database(" in caught.value.hint
    assert "ready for logs now" in run("init", empty).stdout
    assert "was before" in run("init", empty).stdout
    made = run("init", empty, "--log", "acme", "--local", local, "--json").json
    assert made["head"] == 0
    assert (local / ADDRESS_FILE).exists()
    assert run("record", local, "trip", "the ferry leaves at noon", "--start").returncode == 0
    assert "the ferry" in run("recall", local, "ferry", "--model", "none").stdout
    status = run("status", local, "--json").json
    assert (status["log_id"], status["wal"]) == (made["log_id"], None)
    assert status["database"].startswith("acme in postgresql:")
    shown = run("status", local).stdout
    assert "acme in postgresql:" in shown.replace("\n", " ")
    assert "write-ahead" not in shown
    for command in (["verify"], ["replay"], ["sessions"], ["doctor"], ["rebuild", "views"], ["head"], ["export"]):
        assert run(command[0], local, *command[1:]).returncode == 0, command


def test_init_says_who_may_prepare_a_database(run, empty):
    """A user without rights gets the reason that PostgreSQL gives."""
    with connect(empty) as database:
        database.execute("CREATE ROLE nobody_special")
        ran = run("init", f"{empty}&options=-c%20role%3Dnobody_special")
        database.execute("DROP ROLE nobody_special")
    assert ran.returncode == 1
    assert "permission denied" in ran.stderr


def test_a_command_says_that_it_takes_the_folder(run):
    """The folder of a log knows its URL."""
    failed = run("record", "postgresql:///memory", "trip", "The ferry leaves at noon.")
    assert "postgresql:///memory is a URL, and this command takes the folder of a store" in failed.stderr
    assert "`mnemolog init URL --log NAME --local DIR`" in failed.stderr


def test_a_command_says_that_the_server_is_down(run, local):
    """One line of error, one of what to do."""
    local.mkdir()
    (local / ADDRESS_FILE).write_text(f'url = "postgresql://nobody@/none?host={local}"\nlog = "acme"\n')
    ran = run("status", local).exited(1)
    assert "PostgreSQL does not answer" in ran.stderr
    assert "hint: check that PostgreSQL runs" in ran.stderr


def test_a_damaged_address_is_a_clear_error(local):
    """Nothing is created beside it."""
    local.mkdir()
    for content in ("url = ", 'log = "acme"', 'url = "http://db/x"\nlog = "acme"', "\xff"):
        (local / ADDRESS_FILE).write_bytes(content.encode("latin-1"))
        with pytest.raises(errors.NotAStore, match=r"\.mnemolog\.toml"):
            MemoryStore.open(local, model=None)
        assert [path.name for path in local.iterdir()] == [ADDRESS_FILE]


def test_the_page_runs_as_it_is_written(run, postgres_url, tmp_path, monkeypatch):
    """Its commands and its blocks, where the variables of PostgreSQL name the server."""
    monkeypatch.chdir(tmp_path)
    given = psycopg.conninfo.conninfo_to_dict(postgres_url)
    for name in ("host", "port", "user"):
        if name in given:
            monkeypatch.setenv(f"PG{name.upper()}", str(given[name]))
    with connect(postgres_url) as database:
        for made in ("memory", "memory_keys"):
            database.execute(f"DROP DATABASE IF EXISTS {made} WITH (FORCE)")
            database.execute(f"CREATE DATABASE {made}")
        prepare, *others = [command for command in commands(PAGE) if not command[0].startswith("pip")]
        monkeypatch.setenv("MNEMOLOG_MODEL", "none")
        assert run(*shlex.split(prepare[0])[1:]).stdout == prepare[1]
        apart = next(command for command in others if "--keys" in command[0])
        assert run(*shlex.split(apart[0])[1:]).returncode == 0
        for line in blocks(PAGE):
            run_block(PAGE, line)
        for command, _ in others:
            assert run(*shlex.split(command)[1:]).returncode == 0, command
        (grant,) = re.findall(r"```sql\n(.*?)```", (ROOT / PAGE).read_text(), re.DOTALL)
        database.execute("BEGIN")
        database.execute(grant)
        database.execute("ROLLBACK")
        for made in ("memory", "memory_keys"):
            database.execute(f"DROP DATABASE {made} WITH (FORCE)")


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM mnemolog.events WHERE log = (SELECT log FROM mnemolog.head WHERE name = %s) AND position = 3",
        "UPDATE mnemolog.events SET recorded_at = recorded_at + 1 "
        "WHERE log = (SELECT log FROM mnemolog.head WHERE name = %s) AND position = 3",
    ],
    ids=["gone", "changed"],
)
def test_what_a_superuser_changes_past_the_triggers_is_not_read(postgres_url, name, local, change):
    """With projections that have read it as it was, and without: then nothing is built over it."""
    with MemoryStore.open(postgres_url, log=name, local=local, model=HashEncoder(), background=False) as store:
        chat = store.session("trip")
        for said in ("the castle is closed", "the ferry leaves at noon", "the river is wide", "the bridge is open"):
            chat.record("user", said)
        assert store.recall("ferry").hits[0].position == 3
        with connect(postgres_url) as database:
            database.execute("SET session_replication_role = replica")
            database.execute(change, (name,))
        assert store.recall("castle", mode="text", k=1).hits[0].position == 2
        for read in (lambda: store.recall("ferry"), lambda: chat.turns(), lambda: store.rebuild("views"), store.replay):
            with pytest.raises(errors.LogDamaged, match="position 3:"):
                read()
