"""A store whose log is in PostgreSQL, and the nodes of one: they register, show their lag, and may only read.

What a user meets when PostgreSQL is away: what goes on, what says so, and what is refused.
"""

import re
import shlex
import shutil

import psycopg
import pytest

from mnemolog import MemoryStore, errors
from mnemolog.infra import postgres
from mnemolog.infra.log.postgres.address import ADDRESS_FILE
from tests.pages import ROOT, blocks, commands, run_block
from tests.postgres import connect, database_on
from tests.support import HashEncoder, as_typed

PAGE = "docs/postgres.md"


@pytest.fixture
def local(tmp_path):
    """The local folder of a store."""
    return tmp_path / "node"


@pytest.mark.local
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


@pytest.mark.local
def test_the_log_in_the_database_is_whole_without_the_folder(postgres_url, name, local, tmp_path):
    """A node that is thrown away loses projections only; without encryption, any folder continues."""
    with MemoryStore.open(postgres_url, log=name, local=local, model=None, encrypt=False) as store:
        store.session("trip").record("user", "the ferry leaves at noon")
    with MemoryStore.open(postgres_url, log=name, local=tmp_path / "other", model=None) as store:
        assert store.recall("ferry").hits[0].text == "the ferry leaves at noon"
        store.session("trip").record("user", "and comes back at six")
    with MemoryStore.open(local, model=None) as store:
        assert store.recall("comes back").hits[0].position == 3


@pytest.mark.local
def test_a_folder_belongs_to_one_log(postgres_url, name, local, tmp_path):
    """Projections of one log are never opened with another."""
    MemoryStore.open(postgres_url, log=name, local=local, model=None).close()
    with pytest.raises(errors.NotAStore, match="not another in"):
        MemoryStore.open(postgres_url, log="another", local=local, model=None)
    MemoryStore.open(tmp_path / "folder", model=None).close()
    with pytest.raises(errors.NotAStore, match="holds files"):
        MemoryStore.open(postgres_url, log=name, local=tmp_path / "folder", model=None)


@pytest.mark.local
def test_a_url_needs_a_log_that_is_there_and_a_folder(postgres_url, name, tmp_path, here):
    """The error names what is missing, before anything is created. `log` beside a path is a mistake."""
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


@pytest.mark.local
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


@pytest.mark.local
def test_init_says_who_may_prepare_a_database(run, empty):
    """A user without rights gets the reason that PostgreSQL gives."""
    with connect(empty) as database:
        database.execute("CREATE ROLE nobody_special")
        ran = run("init", f"{empty}&options=-c%20role%3Dnobody_special")
        database.execute("DROP ROLE nobody_special")
    assert ran.returncode == 1
    assert "permission denied" in ran.stderr


@pytest.mark.local
def test_a_command_says_that_it_takes_the_folder(run):
    """The folder of a log knows its URL."""
    failed = run("record", "postgresql:///memory", "trip", "The ferry leaves at noon.")
    assert "postgresql:///memory is a URL, and this command takes the folder of a store" in failed.stderr
    assert "`mnemolog init URL --log NAME --local DIR`" in failed.stderr


@pytest.mark.local
def test_a_command_says_that_the_server_is_down(run, local):
    """One line of error, one of what to do."""
    local.mkdir()
    (local / ADDRESS_FILE).write_text(f'url = "postgresql://nobody@/none?host={local}"\nlog = "acme"\n')
    ran = run("status", local).exited(1)
    assert "PostgreSQL does not answer" in ran.stderr
    assert "hint: check that PostgreSQL runs" in ran.stderr


@pytest.mark.local
def test_a_damaged_address_is_a_clear_error(local):
    """Nothing is created beside it."""
    local.mkdir()
    for content in ("url = ", 'log = "acme"', 'url = "http://db/x"\nlog = "acme"', "\xff"):
        (local / ADDRESS_FILE).write_bytes(content.encode("latin-1"))
        with pytest.raises(errors.NotAStore, match=r"\.mnemolog\.toml"):
            MemoryStore.open(local, model=None)
        assert [path.name for path in local.iterdir()] == [ADDRESS_FILE]


@pytest.mark.local
def test_the_page_runs_as_it_is_written(run, postgres_url, monkeypatch, here):
    """Its commands and its blocks, where the variables of PostgreSQL name the server."""
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


@pytest.mark.local
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


READER = "&options=-c%20role%3Dmnemolog_test_reader"


@pytest.fixture(scope="module", autouse=True)
def reader(postgres_url):
    """A user who may read the log and its keys."""
    with connect(postgres_url) as database:
        database.execute("CREATE ROLE mnemolog_test_reader IN ROLE mnemolog_reader, mnemolog_keys_reader")
        yield
        database.execute("DROP ROLE mnemolog_test_reader")


def rows(url, name):
    """Every node of a log as stored, with the transaction that wrote it."""
    with connect(url) as database:
        query = "SELECT n.*, n.xmin FROM mnemolog.nodes n JOIN mnemolog.head h USING (log) WHERE h.name = %s"
        return database.execute(query, (name,)).fetchall()


@pytest.mark.local
def test_a_folder_is_a_node_from_its_first_opening_on(opened, tmp_path):
    """Its id stays when the projections are deleted. Two processes in it are one node, its copy is another."""
    with opened("one") as store, opened("one"):
        (node,) = store.admin.nodes()
        assert node.here
        assert node.label.endswith(":" + str(store.path))
    shutil.rmtree(store.path / "projections", ignore_errors=True)
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    with opened("one") as store:
        (again,) = store.admin.nodes()
        assert again.node == node.node
        assert again.opened_at > node.opened_at
        with opened("two") as other, opened("copy"):
            assert [item.here for item in other.admin.nodes()].count(True) == 1
            assert len({node.node for node in store.admin.nodes()}) == 3


@pytest.mark.local
def test_status_says_how_far_behind_each_node_is(opened, run, tmp_path):
    """The position is that of the views when the node noted it last: it does so when it is closed."""
    with opened("one") as store:
        store.session("trip").record("user", "the ferry leaves at noon")
        store.recall("ferry")
    with opened("two") as store:
        store.session("trip").record("user", "and comes back at six")
        lag = {node.label.rpartition("/")[2]: (node.position, node.behind_events) for node in store.status().nodes}
        assert lag == {"one": (2, 1), "two": (0, 3)}
    shown = run("status", tmp_path / "two").stdout
    assert "last seen" in shown
    assert "this one" in shown
    told = run("status", tmp_path / "two", "--json").json["nodes"]
    assert {(node["position"], node["behind_events"]) for node in told} == {(2, 1), (0, 3)}


@pytest.mark.local
def test_neither_an_append_nor_a_recall_writes_to_the_table_of_nodes(opened, postgres_url, name):
    """An open node notes how far it is once a minute at most."""
    with opened("one") as store:
        store.session("trip").record("user", "the ferry leaves at noon")
        store.recall("ferry")
        before = rows(postgres_url, name)
        for n in range(20):
            store.session("trip").record("user", f"the ferry {n}")
            assert store.recall(f"ferry {n}").hits
        assert rows(postgres_url, name) == before
    assert rows(postgres_url, name) != before


@pytest.mark.local
def test_a_node_that_is_gone_for_good_is_removed(opened, run, tmp_path):
    """A node that is not, is back when it is opened."""
    opened("one").close()
    with opened("two") as store:
        (gone,) = (node for node in store.admin.nodes() if not node.here)
    ran = run("nodes", tmp_path / "two", "--remove", gone.node, "--json")
    assert [node["label"].rpartition("/")[2] for node in ran.json] == ["two"]
    assert f"there is no node '{gone.node}'" in run("nodes", tmp_path / "two", "--remove", gone.node).exited(1).stderr
    with opened("one") as store:
        assert len(store.admin.nodes()) == 2


@pytest.mark.local
@pytest.mark.log_file
def test_a_store_in_a_folder_has_no_nodes(store, run):
    """Its one folder has both the log and the projections."""
    assert store.admin.nodes() == []
    assert store.status().nodes == ()
    assert run("nodes", store.path).stdout == "0 nodes\n"


@pytest.mark.local
@pytest.mark.parametrize("read_only", [False, True])
def test_a_reader_keeps_projections_of_its_own(opened, postgres_url, read_only):
    """The role may read the log; the folder is the reader's own, and is brought up to date as any other."""
    with opened("one") as store:
        store.session("trip").record("user", "the ferry leaves at noon")
        how = {"url": postgres_url + READER, "model": HashEncoder(), "read_only": read_only}
        with opened("two", **how, background=False) as reader:
            assert reader.recall("ferry").hits[0].text == "the ferry leaves at noon"
            store.session("trip").record("user", "and comes back at six")
            assert reader.recall("comes back").hits[0].position == 3
            reader.admin.catch_up_vectors()
            assert reader.verify().sound
            with pytest.raises(errors.StoreNotWritable) as refused:
                reader.session("trip").record("user", "the ferry is late")
            if not read_only:
                assert "permission denied" in str(refused.value)
                assert "Roles" in refused.value.hint
        assert {node.position for node in store.admin.nodes()} == {0, 3}
        with opened("two", **how, background=False) as reader:
            assert reader.status().views.position == 3
            assert reader.status().vectors[0].covers == 3


@pytest.mark.local
def test_commands_that_read_work_for_a_reader(opened, postgres_url, run, tmp_path):
    """Those that write say why they cannot. Only who may write can begin a log."""
    with pytest.raises(errors.StoreNotWritable):
        opened("one", url=postgres_url + READER)
    with pytest.raises(errors.StoreNotFound):
        opened("one", url=postgres_url + READER, read_only=True)
    with opened("one") as store:
        store.session("trip").record("user", "the ferry leaves at noon")
    opened("two", url=postgres_url + READER).close()
    for command in (["status"], ["sessions"], ["show", "trip"], ["find", "ferry"], ["verify"], ["doctor"], ["nodes"]):
        assert run(command[0], tmp_path / "two", *command[1:]).returncode == 0, command
    assert "permission denied" in run("record", tmp_path / "two", "trip", "the ferry is late").exited(1).stderr


@pytest.mark.local
def test_a_reader_changes_no_row_but_its_own(opened, postgres_url, name):
    """It cannot confirm for others, nor take them off the list; nor can it write events."""
    opened("one").close()
    with connect(postgres_url + READER) as database:
        of_this = "log = (SELECT log FROM mnemolog.head WHERE name = %s)"
        assert database.execute(f"UPDATE mnemolog.nodes SET purged = 99 WHERE {of_this}", (name,)).rowcount == 0
        for refused in (
            "DELETE FROM mnemolog.nodes",
            "UPDATE mnemolog.head SET position = 99",
            "INSERT INTO mnemolog.events SELECT * FROM mnemolog.events",
            "INSERT INTO mnemolog.nodes SELECT log, node || 'x', label, 'postgres', 0, 0, 0, 0 FROM mnemolog.nodes",
        ):
            with pytest.raises(Exception, match=r"permission denied|row-level security"):
                database.execute(refused)
    with opened("two", url=postgres_url + READER) as reader, pytest.raises(errors.StoreNotWritable):
        reader.admin.remove_node(reader.admin.nodes()[0].node)
    assert len(rows(postgres_url, name)) == 2


@pytest.mark.local
def test_a_node_of_another_user_says_how_a_reader_gets_its_place(opened, run, tmp_path):
    """Its row belongs to who added it; once that is removed, the reader adds its own."""
    with opened("one") as store:
        (node,) = store.admin.nodes()
    note = tmp_path / "one" / ADDRESS_FILE
    of_writer = note.read_text()
    of_reader = re.sub('url = "(.*)"', rf'url = "\1{READER}"', of_writer)
    note.write_text(of_reader)
    with pytest.raises(errors.StoreNotWritable, match="row-level security") as refused:
        MemoryStore.open(tmp_path / "one", model=None)
    (command,) = re.findall("`mnemolog (.*)`", as_typed(refused.value.hint, tmp_path / "one"))
    assert command == f"nodes {tmp_path / 'one'} --remove {node.node}"
    note.write_text(of_writer)
    assert run(*shlex.split(command)).returncode == 0
    note.write_text(of_reader)
    with MemoryStore.open(tmp_path / "one", model=None) as reader:
        assert reader.admin.nodes()[0].node == node.node


TURNS = 40


@pytest.fixture
def copied(opened, tmp_path):
    """A copy of the folder of a closed node with vectors in a segment and in the cache."""
    with opened("one") as one:
        for n in range(TURNS):
            one.session("trip").record("user", f"the ferry number {n} leaves")
        one.admin.catch_up_vectors()
        for n in range(TURNS, TURNS + 3):
            one.session("trip").record("user", f"the ferry number {n} leaves")
        assert one.recall(f"ferry {TURNS + 2}", mode="vector").hits
        path = one.path
    shutil.copytree(path, tmp_path / "copy")
    return tmp_path / "copy"


@pytest.mark.local
def test_a_new_node_embeds_what_was_recorded_since_and_nothing_again(opened, copied):
    """It is opened as any folder: it knows its log, and is a node of its own. Another model embeds for itself."""
    encoder, other = HashEncoder(), HashEncoder(fingerprint="another/1")
    with MemoryStore.open(copied, model=encoder, background=False) as two:
        assert two.status().views.state == "current"
        two.admin.catch_up_vectors()
        assert encoder.texts_encoded == 0
        assert two.recall(f"the ferry number {TURNS + 2} leaves", mode="vector", k=1).hits[0].position == TURNS + 4
        assert len(two.admin.nodes()) == 2
        assert two.admin.doctor(deep=True).healthy
        encoded = encoder.texts_encoded
        with opened("one") as one:
            one.session("trip").record("user", "and comes back at six")
        two.admin.catch_up_vectors()
        assert encoder.texts_encoded == encoded + 1
        assert two.recall("comes back").hits[0].text == "and comes back at six"
    with MemoryStore.open(copied, model=other, background=False) as two:
        two.admin.catch_up_vectors()
        assert other.texts_encoded == TURNS + 4


@pytest.fixture
def node(stoppable, tmp_path, request, monkeypatch):
    """The local folder of a log with two turns, whose projections have read all of it."""
    monkeypatch.setattr(postgres, "RECONNECT_S", 0.3)
    stoppable.start()
    folder = tmp_path / "node"
    with MemoryStore.open(stoppable.url, log=request.node.name, local=folder, **HOW) as store:
        trip = store.session("trip", scope="acme")
        trip.record("user", "the ferry leaves at noon", key="1")
        trip.record("assistant", "then take the train at ten", key="2")
        assert store.recall("ferry").stale is None
        store.rebuild("vectors")
    return folder


HOW = {"model": HashEncoder(), "background": False}


def test_recall_answers_while_the_server_is_away_and_what_needs_the_log_does_not(stoppable, node):
    """From the projections of this node: the position they have read, and the time of their newest turn.

    No read returns a part of the truth without saying so.
    """
    with MemoryStore.open(node, **HOW) as store:
        newest = store.recall("train").hits[0]
        stoppable.stop()
        answer = store.recall("ferry")
        assert next(hit.text for hit in answer) == "the ferry leaves at noon"
        assert answer.head == answer.stale.position == 3
        assert answer.stale.recorded_at == newest.said_at
        assert "does not answer" in answer.stale.why
        assert "STALE" in repr(answer)
        assert store.recall("ferry", scope="acme", session="trip").hits
        assert store.context("ferry").stale == answer.stale
        assert store.sessions().stale.position == store.scopes().stale.position == 3
        for read in (
            store.head,
            store.verify,
            store.replay,
            lambda: store.turns("trip"),
            lambda: store.find("ferry"),
            lambda: store.session("trip").recall("ferry"),
            lambda: store.recall("ferry", receipt=True),
            lambda: store.forget(session="trip"),
        ):
            with pytest.raises(errors.LogUnreachable):
                read()
        stoppable.start()
        assert store.recall("ferry").stale is None
        assert store.sessions().stale is None


def test_a_store_is_opened_while_the_server_is_away_if_it_has_projections(stoppable, node, tmp_path):
    """It answers from them at once; what would be recorded is refused until the server is there again.

    Then the views that were read alone are proved, as at every open: what another log left is never used with this one.
    """
    stoppable.stop()
    other = tmp_path / "other"
    other.mkdir()
    (other / ADDRESS_FILE).write_bytes((node / ADDRESS_FILE).read_bytes())
    with pytest.raises(errors.LogUnreachable):
        MemoryStore.open(other, **HOW)
    with MemoryStore.open(node, **HOW) as store:
        answer = store.recall("ferry")
        assert answer.hits[0].text == "the ferry leaves at noon"
        assert answer.stale.position == 3
        with pytest.raises(errors.LogUnreachable) as caught:
            store.record("trip", "user", "lost")
        assert "check that PostgreSQL runs" in caught.value.hint
        alone = store.parts.projections._views
        stoppable.start()
        assert store.recall("ferry").stale is None
        assert store.parts.projections._views is not alone
        assert store.record("trip", "user", "found again").position == 4
        assert store.recall("found").hits[0].text == "found again"
        assert store.verify().sound


def test_a_node_may_refuse_to_answer_alone(stoppable, node):
    """What was forgotten elsewhere meanwhile cannot be known here: `away = "refuse"` answers nothing then."""
    with (node / ADDRESS_FILE).open("a") as file:
        file.write('away = "refuse"\n')
    with MemoryStore.open(node, **HOW) as store:
        assert store.recall("ferry").stale is None
        stoppable.stop()
        for read in (store.sessions, lambda: store.recall("ferry"), lambda: store.context("ferry")):
            with pytest.raises(errors.LogUnreachable):
                read()
    with pytest.raises(errors.LogUnreachable):
        MemoryStore.open(node, **HOW)


def test_status_and_doctor_say_that_the_server_is_away(stoppable, node, run):
    """Instead of failing: what is known here, as of when, and what to do."""
    head = run("head", node, "--json").json
    stoppable.stop()
    status = run("status", node, "--json").json
    assert status["stale"]["position"] == status["head"] == head["position"]
    assert status["digest"] == head["digest"]
    assert (status["sessions"], status["turns"], status["views"]["state"]) == (1, 2, "unproved")
    assert "does not answer" in status["warnings"][0]
    assert "nothing can be recorded" in run("status", node).stdout.replace("\n", " ")
    said = run("doctor", node).exited(1).stdout.replace("\n", " ")
    assert "unreachable" in said
    assert "heck that PostgreSQL runs" in said
    ran = run("recall", node, "ferry", "--model", "none")
    assert "the ferry leaves at noon" in ran.stdout
    assert "from projections alone, as of position 3" in ran.stderr.replace("\n", " ")
    assert "hint: check that PostgreSQL runs" in run("record", node, "trip", "lost").exited(1).stderr
    stoppable.start()
    assert run("status", node, "--json").json["stale"] is None
    assert run("doctor", node).returncode == 0
