"""Copying a store between folders and databases: `copy_store` and `mnemolog copy`."""

import subprocess
import sys
import uuid

import pytest

from mnemolog import MemoryStore, copy_store, errors
from mnemolog.infra.log.postgres import schema
from tests.postgres import connect, database_on
from tests.support import HashEncoder

pytestmark = pytest.mark.local

PLACES = ("file", "database")


@pytest.fixture
def second_url(postgres_url):
    """The URL of a database on the same server: a database holds a log once."""
    from mnemolog.infra.log.open import prepare_database

    with database_on(postgres_url) as url:
        prepare_database(url)
        yield url


@pytest.fixture
def place(tmp_path, postgres_url, second_url):
    """Arguments that open, or copy to, a new store at a place of a kind."""

    def place(kind, name):
        if kind == "file":
            return (tmp_path / name,), {}
        url = postgres_url if name == "source" else second_url
        return (url,), {"log": f"{name} {uuid.uuid4().hex}", "local": tmp_path / name}

    return place


@pytest.fixture
def source(place):
    """The folder of a store in a file."""
    return filled(*place("file", "source"))


def filled(at, how, *, encrypt=True, turns=600):
    """Create a store with turns, and return its folder."""
    with MemoryStore.open(*at, **how, model=None, encrypt=encrypt) as store:
        trip = store.session("trip", title="grüße 世界 🌍")
        for n in range(turns):
            trip.record("user", f"turn {n}", key=str(n) if n % 2 else None)
        return store.path


def add(folder, *texts):
    """Record further turns."""
    with MemoryStore.open(folder, model=None) as store:
        for text in texts:
            store.session("trip").record("user", text)
        return store.head()


def digests(folder):
    """Every row as it is stored."""
    with MemoryStore.open(folder, model=None) as store:
        return [
            row
            for rows in store.parts.log.stored_rows(after=0, upto=store.head().position, batch_max=100)
            for row in rows
        ]


@pytest.mark.parametrize("encrypt", [True, False], ids=["encrypted", "plain"])
@pytest.mark.parametrize("to", PLACES)
@pytest.mark.parametrize("of", PLACES)
def test_a_copy_has_every_digest_of_its_source(place, of, to, encrypt):
    """In all four directions: the same rows, read, verified and continued there, with the identity of the log."""
    source = filled(*place(of, "source"), encrypt=encrypt)
    at, how = place(to, "target")
    report = copy_store(source, *at, **how)
    assert (report.copied, report.head, report.keys) == (601, 601, encrypt)
    assert bool(report.database) == (to == "database")
    target = how.get("local", at[0])
    assert digests(target) == digests(source)
    with MemoryStore.open(target, model=HashEncoder(), background=False) as store:
        assert store.parts.log.log_id == report.log_id
        assert store.head().digest == report.digest
        assert store.recall("turn 599").hits[0].text == "turn 599"
        assert store.verify(contents=True).sound
        assert store.session("trip").record("user", "turn 1", key="1").position == 3, "a retry finds what was copied"
        assert store.session("trip").record("user", "later").position == 602


@pytest.mark.parametrize("to", PLACES)
def test_what_came_later_is_copied_by_the_next_run(place, source, to):
    """Only the rest: the digest at the head of the copy proves that it is the beginning of the source."""
    at, how = place(to, "target")
    copy_store(source, *at, **how)
    head = add(source, "later", "and later still")
    report = copy_store(source, *at, **how)
    assert (report.copied, report.head, report.digest) == (2, 603, head.digest)
    assert copy_store(source, *at, **how).copied == 0
    assert copy_store(source, how.get("local", at[0])).copied == 0, "the folder of a copy knows its database"


class Killed(Exception):
    """Ends a copy."""


@pytest.mark.parametrize("to", PLACES)
def test_a_copy_that_is_killed_at_any_moment_is_continued(place, source, to):
    """`kill -9` again and again, each time a little later, until one run comes to its end."""
    at, how = place(to, "target")
    arguments = [*at, *(f"--{name}={value}" for name, value in how.items())]
    program = (
        "import sys; from mnemolog.infra.log import event_log; event_log.COPIED_TOGETHER = 7; "
        "from mnemolog.cli import main; main()"
    )
    command = [sys.executable, "-c", program, "copy", source, *arguments]
    killed, patience_s = 0, 0.1
    while True:
        try:
            assert subprocess.run(command, timeout=patience_s, capture_output=True).returncode == 0
            break
        except subprocess.TimeoutExpired:
            killed, patience_s = killed + 1, patience_s * 1.25
    assert killed
    assert copy_store(source, *at, **how).copied == 0
    assert digests(how.get("local", at[0])) == digests(source)


@pytest.mark.parametrize("to", PLACES)
def test_a_copy_that_was_written_to_is_refused_and_stays_as_it_is(place, source, to):
    """It has diverged, whether it has more events than the source or others."""
    at, how = place(to, "target")
    copy_store(source, *at, **how)
    own = add(how.get("local", at[0]), "only here")
    with pytest.raises(errors.BackupRefused, match=r"up to position 602 that are not in the source.*diverged"):
        copy_store(source, *at, **how)
    add(source, "only there", "and there")
    for dry_run in (True, False):
        with pytest.raises(errors.BackupRefused, match=r"up to position 602 that differ from the source.*diverged"):
            copy_store(source, *at, **how, dry_run=dry_run)
    with MemoryStore.open(how.get("local", at[0]), model=None) as store:
        assert store.head() == own
        assert store.verify().sound


@pytest.mark.parametrize("to", PLACES)
def test_another_log_at_the_target_is_refused(place, source, to):
    """Nothing of it is changed."""
    at, how = place(to, "target")
    folder = filled(at, how, turns=3)
    before = digests(folder)
    with pytest.raises(errors.BackupRefused, match="holds log"):
        copy_store(source, *at, **how)
    assert digests(folder) == before


def test_a_database_holds_a_log_once(source, postgres_url, tmp_path):
    """Another name for the same log would be two logs with one identity."""
    name = uuid.uuid4().hex
    copy_store(source, postgres_url, log=name, local=tmp_path / "node")
    with pytest.raises(errors.BackupRefused, match=f"has this log already, under the name '{name}'"):
        copy_store(source, postgres_url, log="another", local=tmp_path / "another")
    with pytest.raises(errors.InvalidInput, match="it is the source"):
        copy_store(tmp_path / "node", postgres_url, log=name, local=tmp_path / "another")
    for target in (source, source / ".." / "source"):
        with pytest.raises(errors.InvalidInput, match="it is the source"):
            copy_store(source, target)
    with pytest.raises(errors.BackupRefused, match="in the folder of another"):
        copy_store(source, source / "copy")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "photo.jpg").touch()
    with pytest.raises(errors.NotAStore, match="holds files"):
        copy_store(source, tmp_path / "photos")


@pytest.mark.parametrize("to", PLACES)
def test_a_dry_run_writes_nothing(place, source, to, postgres_url, tmp_path):
    """It says how much there is to copy."""
    at, how = place(to, "target")
    report = copy_store(source, *at, **how, dry_run=True)
    assert (report.copied, report.dry_run) == (601, True)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]
    copy_store(source, *at, **how)
    add(source, "later")
    assert copy_store(source, *at, **how, dry_run=True).copied == 1
    assert copy_store(source, *at, **how).copied == 1


def test_damage_in_the_source_is_not_copied_and_damage_in_the_copy_is_found(place, source, second_url):
    """The first event that is not what was recorded ends the copy. Every run verifies all of the copy."""
    at, how = place("database", "node")
    copy_store(source, *at, **how)
    with connect(second_url) as database:
        database.execute("SET session_replication_role = replica")
        database.execute("UPDATE mnemolog.events SET state = '\\x80' WHERE position = 300")
    with pytest.raises(errors.LogDamaged, match=r"position 300: .*does not match .*nothing from there on was copied"):
        copy_store(how["local"], how["local"].parent / "target")
    assert len(digests(how["local"].parent / "target")) == 0
    with pytest.raises(errors.LogDamaged, match=r"does not verify.*not complete"):
        copy_store(source, *at, **how)


def test_an_encrypted_log_can_be_copied_without_its_keys(source, tmp_path):
    """The report says what is missing; a later run brings them."""
    report = copy_store(source, tmp_path / "target", with_keys=False)
    assert not report.keys
    assert "keys were not copied" in report.notes[0]
    with MemoryStore.open(tmp_path / "target", model=None) as store, pytest.raises(errors.KeysMissing):
        store.turns("trip")
    assert copy_store(source, tmp_path / "target").keys
    with MemoryStore.open(tmp_path / "target", model=None) as store:
        assert len(store.turns("trip")) == 600


def test_what_was_forgotten_in_the_source_is_forgotten_in_the_copy(source, tmp_path):
    """The next run replaces the keys: those that were destroyed are gone there too."""
    copy_store(source, tmp_path / "target")
    with MemoryStore.open(source, model=None) as store:
        store.forget(positions=[2])
    copy_store(source, tmp_path / "target")
    with MemoryStore.open(tmp_path / "target", model=None) as store:
        assert [turn.text for turn in store.turns("trip")][:1] == ["turn 1"]
        assert store.verify(contents=True).sound


def test_a_source_in_use_is_copied(source, tmp_path):
    """Its writers go on; what they record meanwhile is copied by the next run."""
    with MemoryStore.open(source, model=None) as store:
        store.session("trip").record("user", "before")
        report = copy_store(source, tmp_path / "target", progress=lambda *_: store.record("trip", "user", "meanwhile"))
        assert report.head == 602
        assert copy_store(source, tmp_path / "target").head == store.head().position > 602


def test_the_command_copies_and_says_what_it_copied(run, source, postgres_url, tmp_path):
    """Plain and as JSON; the folder of the copy works in every command."""
    name, node = uuid.uuid4().hex, tmp_path / "node"
    to = ("copy", source, postgres_url, "--log", name, "--local", node)
    assert "would copy" in run(*to, "--dry-run").stdout
    made = run(*to, "--json").json
    assert (made["copied"], made["head"]) == (601, 601)
    again = run(*to)
    assert "0 events" in again.stdout
    assert made["digest"] in again.stdout
    assert "Projections are not copied" in again.stdout.replace("\n", " ")
    assert run("verify", node).returncode == 0
    assert "--log" in run("copy", source, postgres_url).stderr


@pytest.mark.parametrize("to", PLACES)
@pytest.mark.parametrize("of", PLACES)
def test_a_moved_log_is_read_but_takes_no_more_events(place, run, of, to):
    """Whoever opens it later learns where it is now; the commands say so too, and it is no damage."""
    source = filled(*place(of, "source"), turns=3)
    at, how = place(to, "target")
    assert run("status", source, "--json").json["moved_to"] == ""
    report = copy_store(source, *at, **how, move=True)
    where = report.database or report.target
    assert (report.moved, report.head) == (True, 4)
    with MemoryStore.open(source, model=None) as store:
        assert store.recall("turn 2").hits[0].text == "turn 2"
        for number in (1, 100):
            with pytest.raises(errors.StoreNotWritable, match="the log was moved to") as caught:
                store.record_many([{"role": "user", "text": str(n)} for n in range(number)], "trip")
            assert where in str(caught.value)
        assert store.head().digest == report.digest
    status, verified = run("status", source, "--json").json, run("verify", source, "--json").json
    assert (status["moved_to"], verified["moved_to"], verified["sound"]) == (where, where, True)
    assert "no more events" in status["warnings"][0]
    assert "was moved to" in run("verify", source).stderr.replace("\n", " ")
    assert "was moved to" in run("doctor", source).stdout.replace("\n", " ")
    with MemoryStore.open(how.get("local", at[0]), model=None) as store:
        assert store.session("trip").record("user", "continued").position == 5


@pytest.mark.parametrize("of", PLACES)
def test_a_move_can_be_given_up(place, tmp_path, postgres_url, of):
    """As the hint says: by deleting a file, or by a statement in the database. The copy is brought up to date later."""
    source = filled(*place(of, "source"), turns=3)
    copy_store(source, tmp_path / "target", move=True)
    with MemoryStore.open(source, model=None) as store:
        with pytest.raises(errors.StoreNotWritable) as caught:
            store.record("trip", "user", "too late")
        _, _, undo = caught.value.hint.partition("to give up the move: ")
        if of == "file":
            assert undo == f"delete {source / 'moved.txt'}"
            (source / "moved.txt").unlink()
        else:
            with connect(postgres_url) as database:
                assert database.execute(undo.split("`")[1]).rowcount == 1
        assert store.record("trip", "user", "goes on").position == 5
    report = copy_store(source, tmp_path / "target", move=True)
    assert (report.copied, report.head) == (1, 5)


@pytest.mark.parametrize("of", PLACES)
def test_a_move_that_does_not_complete_leaves_the_source_open(place, tmp_path, of):
    """Where events were recorded meanwhile, nothing that was acknowledged may be missing; the next run copies it."""
    source = filled(*place(of, "source"), turns=3)

    def interrupt(done, total):
        raise Killed

    with MemoryStore.open(source, model=None) as writer:
        for report, error in (
            (lambda *_: writer.record("trip", "user", "new"), errors.BackupRefused),
            (interrupt, Killed),
        ):
            with pytest.raises(error):
                copy_store(source, tmp_path / "target", move=True, progress=report)
            assert writer.status().moved_to == ""
        assert not copy_store(source, tmp_path / "target", move=True, dry_run=True).moved
    head = add(source, "the last one")
    assert copy_store(source, tmp_path / "target", move=True).digest == head.digest


def test_a_log_is_moved_to_one_place(source, tmp_path):
    """A second move elsewhere is refused; the same one again finds nothing to do; a copy may be made anywhere."""
    copy_store(source, tmp_path / "target", move=True)
    with pytest.raises(errors.StoreNotWritable, match="was moved to"):
        copy_store(source, tmp_path / "elsewhere", move=True)
    assert not (tmp_path / "elsewhere").exists()
    again = copy_store(source, tmp_path / "target", move=True)
    assert (again.copied, again.moved) == (0, True)
    assert copy_store(source, tmp_path / "elsewhere").moved
    with pytest.raises(errors.StoreNotWritable, match="was moved to"):
        copy_store(tmp_path / "target", source)


@pytest.mark.parametrize(
    ("option", "error", "message"),
    [
        (f"options=-c%20role%3D{schema.WRITER}", errors.StoreNotWritable, "permission denied"),
        ("application_name=other", errors.InvalidInput, "it is the source"),
    ],
    ids=["by a writer", "to itself"],
)
def test_a_log_in_a_database_is_not_moved(postgres_url, second_url, tmp_path, option, error, message):
    """By a writer, who may only append; or to itself under another URL."""
    name, url = uuid.uuid4().hex, f"{postgres_url}{'&' if '?' in postgres_url else '?'}{option}"
    of, to = (url, second_url) if error is errors.StoreNotWritable else (postgres_url, url)
    with MemoryStore.open(of, log=name, local=tmp_path / "node", model=None, encrypt=False) as store:
        store.session("trip").record("user", "turn")
    with pytest.raises(error, match=message):
        copy_store(tmp_path / "node", to, log=name, local=tmp_path / "target", move=True)
    with MemoryStore.open(tmp_path / "node", model=None) as store:
        assert store.record("trip", "user", "goes on").position == 3
