"""Nodes of a log in PostgreSQL: they register, start from a copy, are listed with their lag, and may only read."""

import re
import shlex
import shutil

import pytest

from mnemolog import MemoryStore, errors
from mnemolog.infra.log.postgres.address import ADDRESS_FILE
from tests.postgres import connect
from tests.support import HashEncoder, as_typed

pytestmark = pytest.mark.local


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


@pytest.mark.log_file
def test_a_store_in_a_folder_has_no_nodes(store, run):
    """Its one folder has both the log and the projections."""
    assert store.admin.nodes() == []
    assert store.status().nodes == ()
    assert run("nodes", store.path).stdout == "0 nodes\n"


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
