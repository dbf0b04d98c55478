"""Every state of a store: what doctor, status, verify and recall say about it, and that the command they name mends it.

No state gives a raw error, and none is called healthy beyond what was looked at. status, doctor and quarantine as
an operator meets them: words, JSON, exit codes.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from pysqlite3 import dbapi2

from mnemolog import LogDamaged, MemoryStore, MnemologError
from mnemolog.cli.entry import notes_on_quarantine
from mnemolog.defaults import DEFAULT_MODEL
from mnemolog.infra.embedding.model_files import resolve_model
from mnemolog.operations import doctor
from mnemolog.operations.backup_files import failed_commands, last_backup, remember_backup
from mnemolog.projections.history import verify
from tests.e2e.test_cli import refused
from tests.faults.tamper import copy_store
from tests.support import HashEncoder, Picky

TURNS = 40
PAGE = 4_096


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A store with two sessions, views and vectors, its backup and a copy of its keys; all closed."""
    base = tmp_path_factory.mktemp("a store's health")
    with MemoryStore.open(base / "memory", model=HashEncoder(), background=False) as store:
        for name in ("a", "b"):
            store.start_session(name, scope=f"acme/{name}")
        for number in range(TURNS):
            store.record("ab"[number % 2], "user", f"note number{number} " + "with some more words " * 10)
        store.recall("number3")
        store.admin.catch_up_vectors()
        store.backup(base / "backup", keys=base / "keys")
    return base


@pytest.fixture
def memory(sound, tmp_path):
    """A copy of that store, which knows of the same backup. Its folder has to be quoted."""
    folder = tmp_path / "my memory"
    shutil.copytree(sound / "memory", folder)
    return folder


def zero(path, page):
    """Overwrite a page of a database with zeros; a negative one counts from the end."""
    pages = path.stat().st_size // PAGE
    with path.open("r+b") as file:
        file.seek(page % pages * PAGE)
        file.write(bytes(PAGE))


def other_database(path):
    path.unlink()
    with dbapi2.connect(path) as connection:
        connection.execute("CREATE TABLE theirs (a)")
    connection.close()


LOST = {
    "log.db is missing": lambda folder: (folder / "log.db").unlink(),
    "log.db is empty": lambda folder: (folder / "log.db").write_bytes(b""),
    "log.db is the database of another program": lambda folder: other_database(folder / "log.db"),
    "log.db is not a SQLite database": lambda folder: zero(folder / "log.db", 0),
}
"""How a log is lost, by what is said about it."""


def files(folder):
    """The files of a store with their sizes, without those that SQLite needs for reading."""
    found = (path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(("-wal", "-shm")))
    return {str(path.relative_to(folder)): path.stat().st_size for path in found}


def shell(run, command):
    """Run a command as it was printed: one of mnemolog in this process, with the words that a shell makes of it."""
    first, *words = shlex.split(command)
    if first == "mnemolog" and "&&" not in words:
        ran = run(*words)
    else:
        environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        ran = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=environment, timeout=120)
    assert ran.returncode == 0, (command, ran)


def command_in(text):
    """The last command that a text names."""
    return re.findall(r"`([^`]*)`", text)[-1]


@pytest.mark.parametrize("how", LOST)
def test_a_store_without_its_log_is_called_one_and_the_command_restores_it(memory, run, how):
    """Exit status 3, the newest backup by its path, and nothing written into the folder."""
    LOST[how](memory)
    before = files(memory)
    lines = ("doctor", "doctor --deep", "status", "verify", "sessions", "recall number3 --mode text", "status")
    for name, *options in (line.split() for line in lines):
        ran = run(name, memory, *options)
        assert ran.returncode == 3, name
        assert re.search(rf"was a store: it has \S+, but its {re.escape(how)}", ran.stdout + ran.stderr), name
        assert files(memory) == before
    shell(run, command_in(ran.stderr))
    with MemoryStore.open(memory.with_name("my memory-restored"), model=None, create=False) as store:
        assert store.head().position == TURNS + 2
        assert store.verify(contents=True).sound


@pytest.mark.parametrize("encrypt", [True, False])
def test_no_new_log_is_created_where_one_was_lost(tmp_path, encrypt):
    """By `open` either, whether the content was encrypted or not."""

    def log(folder):
        return (folder / "log.db").read_bytes() if (folder / "log.db").exists() else None

    for number, lose in enumerate(LOST.values()):
        folder = tmp_path / f"memory {number}"
        with MemoryStore.open(folder, model=None, encrypt=encrypt) as store:
            store.session("s").record("user", "hello")
            store.sessions()
        lose(folder)
        left = log(folder)
        for _ in range(2):
            with pytest.raises(LogDamaged, match="was a store"):
                MemoryStore.open(folder, model=None)
        assert log(folder) == left


def flip_an_event(folder):
    """Change a bit of the stored bytes of an event in the middle of the log."""
    data = bytearray((folder / "log.db").read_bytes())
    data[data.index(b"turn.recorded.v1", len(data) // 3) + 40] ^= 1
    (folder / "log.db").write_bytes(data)


def lose_the_tail(folder):
    """Remove the newest events and all traces of them in the log, as an older file put in its place would."""
    with dbapi2.connect(folder / "log.db") as connection:
        triggers = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")]
        kept = [sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master WHERE type = 'trigger'")]
        for name in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute("DELETE FROM events WHERE position > 30")
        connection.execute("UPDATE sqlite_sequence SET seq = 30 WHERE name = 'events'")
        for statement in kept:
            connection.execute(statement)
    connection.close()
    shutil.rmtree(folder / "projections")


DAMAGED = {
    "a page in the middle is zeroed": lambda folder: zero(folder / "log.db", 9),
    "the last page is zeroed": lambda folder: zero(folder / "log.db", -1),
    "half of the file is cut off": lambda folder: os.truncate(
        folder / "log.db", (folder / "log.db").stat().st_size // 2 // PAGE * PAGE
    ),
    "an event was changed": flip_an_event,
    "the newest events are gone, and only a backup knows": lose_the_tail,
}


@pytest.mark.parametrize("how", DAMAGED)
def test_a_damaged_log_is_found_in_both_depths_and_the_command_restores_it(memory, run, how):
    """Exit status 3 from doctor, doctor --deep and verify, each with the same command; nothing recommends itself."""
    DAMAGED[how](memory)
    commands = set()
    for arguments in (("doctor", memory), ("doctor", memory, "--deep"), ("verify", memory)):
        ran = run(*arguments)
        assert ran.returncode == 3, (arguments, ran)
        said = ran.stdout + ran.stderr
        commands |= set(re.findall(r"`(mnemolog restore [^`]*)`", said))
        assert f"`mnemolog verify {memory}" not in said
        if arguments[0] == "verify":
            assert "`mnemolog verify" not in said
    (command,) = commands
    for arguments in (("status", memory), ("recall", memory, "number3", "--mode", "text"), ("show", memory, "a")):
        assert run(*arguments).returncode in (0, 3)
    shell(run, command)
    restored = memory.with_name("my memory-restored")
    assert run("doctor", restored, "--deep").returncode == 0
    assert run("verify", restored, "--contents").returncode == 0
    assert run("show", restored, "a").returncode == 0


def keys_of_another(folder):
    other = folder.with_name("another")
    with MemoryStore.open(other, model=None) as store:
        store.session("z").record("user", "other")
    (folder / "keys.db").write_bytes((other / "keys.db").read_bytes())


def lose_a_series(folder):
    with dbapi2.connect(folder / "keys.db") as connection:
        connection.execute("DELETE FROM nodes WHERE stream = 'session/a'")
    connection.close()


KEYS = {
    "missing": lambda folder: (folder / "keys.db").unlink(),
    "empty": lambda folder: (folder / "keys.db").write_bytes(b""),
    "overwritten": lambda folder: (folder / "keys.db").write_bytes(b"\xff" * 9_000),
    "with a page of zeros": lambda folder: zero(folder / "keys.db", 2),
    "of another log": keys_of_another,
    "without one series": lose_a_series,
}


@pytest.mark.parametrize("how", KEYS)
def test_lost_keys_are_a_finding_in_both_depths_and_the_command_puts_them_back(memory, run, how):
    """Exit status 3, one finding with the command; status warns; what was there is kept."""
    KEYS[how](memory)
    for arguments in (("doctor", memory, "--json"), ("doctor", memory, "--deep", "--json")):
        ran = run(*arguments)
        assert ran.returncode == 3, (arguments, ran)
        (finding,) = [item for item in json.loads(ran.stdout)["findings"] if item["severity"] == "log"]
        assert finding["what"] == "keys"
    assert run("verify", memory).returncode == 0, "the chain needs no keys"
    refused = run("show", memory, "a")
    assert (refused.returncode, "nothing counts as forgotten; end the processes" in refused.stderr) == (3, True)
    shown = run("doctor", memory)
    assert "THE KEYS OF THE LOG" in shown.stdout
    if how != "without one series":
        assert "`cp " in run("status", memory).stdout or "&& cp " in run("status", memory).stdout
    shell(run, command_in(finding["action"]))
    assert run("doctor", memory, "--deep").returncode == 0
    assert run("verify", memory, "--contents").returncode == 0


def spoil_segment(folder):
    (vectors,) = folder.glob("projections/vectors/*/*/vectors.q12")
    vectors.write_bytes(b"")


def test_doctor_says_what_it_checked_and_what_it_did_not(memory, run):
    """Never that nothing is wrong: a quick check has not read the projections, and says how to read them."""
    quick = run("doctor", memory)
    assert quick.returncode == 0
    assert "no problems found in what was checked" in quick.stdout
    assert re.search(rf"^checked: {TURNS + 2} of {TURNS + 2} events of the log; .*2 keys", quick.stdout, re.M)
    command = command_in(quick.stdout)
    assert re.search(r"^not checked: the contents of the projections", quick.stdout, re.M)
    assert command == f"mnemolog doctor '{memory}' --deep"
    deep = run("doctor", memory, "--deep")
    assert deep.returncode == 0
    assert "not checked" not in deep.stdout


@pytest.mark.log_file
def test_a_quick_check_of_a_long_log_follows_its_tail_and_samples(folder, monkeypatch):
    """And says how many events it followed; a change in the tail is found, one between two samples is not claimed."""
    monkeypatch.setattr(verify, "TAIL_EVENTS", 20)
    monkeypatch.setattr(verify, "SAMPLES", 3)
    monkeypatch.setattr(verify, "SAMPLE_EVENTS", 5)
    monkeypatch.setattr(doctor, "PAGES_CHECKED_BYTES", 0)
    with MemoryStore.open(folder, model=None) as store:
        for number in range(200):
            store.session("a").record("user", f"note {number}")
        found = store.admin.doctor()
        assert found.healthy
        assert "35 of 201 events of the log" in found.checked
        assert {"the other events", "the pages of log.db"} <= set(found.not_checked)
    for position, seen in ((195, True), (3, True), (50, False)):
        with dbapi2.connect(folder / "log.db") as connection:
            connection.execute("DROP TRIGGER IF EXISTS events_refuse_update")
            connection.execute("UPDATE events SET recorded_at = recorded_at + 1 WHERE position = ?", (position,))
        connection.close()
        with MemoryStore.open(folder, model=None) as store:
            places = [item.where for item in store.admin.doctor().findings if item.state == "changed"]
        assert (f"log.db at {position}" in places) == seen


def test_a_store_without_a_backup_gets_a_note_and_the_command_makes_one(memory, run):
    """A note is no problem. The keys are copied as well. Until then a lost log has no command with a made-up path.

    A backup that is old is noted too, if events were recorded since; the note says how many.
    """
    (memory / "backups.json").unlink()
    shown = run("doctor", memory)
    assert (shown.returncode, "no backup is known" in shown.stdout) == (0, True)
    (memory / "log.db").rename(memory / "away.db")
    ran = run("verify", memory)
    assert (ran.returncode, "`" in ran.stderr) == (3, False)
    assert "no backup of this store is known here" in ran.stderr
    (memory / "away.db").rename(memory / "log.db")
    (command,) = re.findall(r"`(mnemolog backup [^`]*)`", shown.stdout)
    shell(run, command)
    assert "no backup" not in run("doctor", memory).stdout
    known = last_backup(memory)
    remember_backup(memory, msgspec.structs.replace(known, created_at=known.created_at - timedelta(days=31)))
    assert "backups.json: old" not in run("doctor", memory).stdout
    assert run("record", memory, "a", "one more").returncode == 0
    shown = run("doctor", memory)
    assert (shown.returncode, "backups.json: old (note)" in shown.stdout) == (0, True)
    assert "1 event is newer" in shown.stdout
    (memory / "log.db").unlink()
    shell(run, command_in(run("verify", memory).stderr))


KILLED = """
import os, sys
from mnemolog import MemoryStore
store = MemoryStore.open(sys.argv[1], model=None, background=False)
for number in range(20):
    store.session("a").record("user", f"note {number}")
store.backup(sys.argv[2], keys=sys.argv[3])
os._exit(0)
"""


def test_a_write_ahead_log_that_was_deleted_after_a_crash_is_noticed(tmp_path, run):
    """The newest commits were in it. The backup knows of them, and the command restores it."""
    folder = tmp_path / "memory"
    subprocess.run([sys.executable, "-c", KILLED, folder, tmp_path / "backup", tmp_path / "keys"], check=True)
    assert (folder / "log.db-wal").stat().st_size
    for part in ("-wal", "-shm"):
        (folder / f"log.db{part}").unlink()
    for name in ("doctor", "verify"):
        ran = run(name, folder)
        assert ran.returncode == 3, ran
    shell(run, command_in(ran.stderr))
    with MemoryStore.open(tmp_path / "memory-restored", model=None, create=False) as store:
        assert len(store.turns("a")) == 20


def noted_until_its_command_ran(run, folders, note, command):
    """Each folder has a note until the command of the last one is run. Return what doctor printed with that."""
    for folder in folders:
        shown = run("doctor", folder)
        assert (shown.returncode, note in shown.stdout) == (0, True)
    (printed,) = re.findall(rf"`({command} [^`]*)`", shown.stdout)
    shell(run, printed)
    assert note not in run("doctor", folders[0]).stdout
    return shown.stdout


def test_keys_that_others_may_read_are_noted_and_the_command_closes_them(memory, run):
    """The mode of the log too."""
    (memory / "keys.db").chmod(0o644)
    assert "its mode is 0644" in noted_until_its_command_ran(run, [memory], "its mode is", "chmod")


def test_a_store_in_the_folder_of_another_is_noted_from_both_sides(memory, sound, run):
    """A backup of the outer one would leave it out."""
    shutil.copytree(sound / "memory", memory / "inner")
    noted_until_its_command_ran(run, [memory, memory / "inner"], "in the folder of another", "mv")


def test_little_room_is_a_problem(memory, run, monkeypatch):
    """Before nothing can be recorded any more."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1_000_000))
    shown = run("doctor", memory)
    assert (shown.returncode, "1,000,000 bytes left" in shown.stdout) == (1, True)


@pytest.mark.parametrize("how", ["a trigger is missing", "its header forbids writing"])
def test_where_no_event_is_lost_the_command_copies_all_of_them(memory, run, how):
    """Not only those that a backup has."""
    if how == "a trigger is missing":
        with dbapi2.connect(memory / "log.db") as connection:
            connection.execute("DROP TRIGGER events_refuse_delete")
        connection.close()
    else:
        with (memory / "log.db").open("r+b") as file:
            file.seek(18)
            file.write(b"\x09")
    ran = run("verify", memory)
    assert ran.returncode == 3
    assert "no event is lost" in ran.stderr
    for command in re.findall("`(mnemolog [^`]*)`", ran.stderr):
        shell(run, command)
    assert run("verify", memory.with_name("my memory-restored"), "--contents").returncode == 0


def test_a_model_that_is_missing_is_named(memory, run):
    """A note where nobody asked for it, a problem where somebody did."""
    shown = run("doctor", memory)
    assert (shown.returncode, "no model 'hash-words' on this machine" in shown.stdout) == (0, True)
    asked = run("doctor", memory, "--model", "/nowhere/a model")
    assert (asked.returncode, "the folder does not exist" in asked.stdout) == (1, True)


def test_the_repair_of_a_vector_file_is_noted_in_one_line(memory, run, capsys):
    """On standard error, with `--json` too; doctor --fix says it in its answer."""
    spoil_segment(memory)
    with MemoryStore.open(memory, model=HashEncoder(), background=False) as store, notes_on_quarantine([]):
        assert store.recall("number3").hits
    (line,) = capsys.readouterr().err.splitlines()
    assert re.fullmatch(
        r"note: projections/vectors/\S+ is damaged: it was moved to quarantine, and is rebuilt from the log", line
    )
    (memory / "projections/views.db").write_bytes(b"\xff" * 9_000)
    (line,) = run("sessions", memory, "--json").stderr.splitlines()
    assert line.startswith("note: projections/views.db is damaged: ")


def test_status_keeps_the_name_of_a_model_whose_vectors_are_gone(memory, run):
    """Of one that was activated: the log knows it. Every command is complete."""
    with MemoryStore.open(memory, model=HashEncoder(), background=False) as store:
        store.models.activate(HashEncoder())
    shutil.rmtree(memory / "projections" / "vectors")
    shown = run("status", memory).stdout
    assert re.search(r"^vectors hash-words \w{8} +missing", shown, re.M)
    assert f"`mnemolog rebuild '{memory}' vectors --model hash-words`" in shown
    for placeholder in ("DIR", "MODEL", "..."):
        assert placeholder not in shown


def copy_of_minilm(folder):
    """The default model under another name, with another fingerprint."""
    shutil.copytree(resolve_model(DEFAULT_MODEL), folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"of_a_test": True}))
    return folder


@pytest.mark.parametrize(("activated", "healed"), [(True, False), (False, True)])
def test_doctor_fix_uses_the_model_that_the_store_uses(tmp_path, run, activated, healed):
    """Not the default one: it would make vectors that nobody asks for. Also after a recall has set a segment aside."""
    folder, model = tmp_path / "my memory", str(copy_of_minilm(tmp_path / "another model"))
    with MemoryStore.open(folder, model=model, background=False) as store:
        store.session("a").record("user", "tea in Porto")
        store.admin.catch_up_vectors()
        if activated:
            store.models.activate(model)
    spoil_segment(folder)
    if healed:
        with MemoryStore.open(folder, model=model, background=False) as store:
            assert store.recall("tea").hits
    ran = run("doctor", folder, "--deep", "--fix")
    assert ran.returncode == 0, ran
    with MemoryStore.open(folder, model=None) as store:
        (vectors,) = store.status().vectors
    assert (vectors.model, vectors.state, vectors.behind_events) == (model, "current", 0)


def test_no_state_of_a_store_gives_a_raw_error(memory, run, rng):
    """Random bytes over random parts of random files: every command answers or refuses with an error of mnemolog."""
    files_of = sorted(path for path in memory.rglob("*") if path.is_file() and path.stat().st_size)
    for path in rng.sample(files_of, 8):
        kept = path.read_bytes()
        data = bytearray(kept)
        at = rng.randrange(len(data))
        data[at : at + 64] = rng.randbytes(min(64, len(data) - at))
        path.write_bytes(data)
        for arguments in (
            ("doctor", memory),
            ("doctor", memory, "--deep"),
            ("status", memory),
            ("verify", memory),
            ("recall", memory, "number3", "--mode", "text"),
        ):
            assert run(*arguments).returncode in (0, 1, 3), (path, arguments)
        with suppress(MnemologError):
            MemoryStore.open(memory, model=None).close()
        path.write_bytes(kept)


def test_keys_that_this_user_may_not_read_are_a_finding_with_their_owner(memory, run, monkeypatch):
    """They are not replaced; the chain is verified without them, and verify says what it could not read."""
    may = os.access
    monkeypatch.setattr(os, "access", lambda path, mode, **how: Path(path).name != "keys.db" and may(path, mode, **how))
    shown = run("doctor", memory)
    assert (shown.returncode, "this user may not read it" in shown.stdout) == (3, True)
    assert f"`ls -l '{memory}/keys.db'`" in shown.stdout
    verified = run("verify", memory)
    assert (verified.returncode, "the content cannot be read" in verified.stderr) == (0, True)


@pytest.mark.parametrize("name", ["log.db", "keys.db"])
def test_doctor_of_an_open_store_whose_file_was_moved_reports_it(memory, name):
    """As a finding about the log, whatever else it would have looked at."""
    with MemoryStore.open(memory, model=None, background=False) as store:
        store.record("a", "user", "one more")
        (memory / name).rename(memory / "moved")
        for deep in (False, True):
            report = store.admin.doctor(deep=deep)
            (finding,) = report.findings
            assert (report.log_damaged, finding.where, finding.state) == (True, name, "replaced")


def test_a_command_after_a_backup_knows_where_it_is_and_its_failures_are_counted(memory, tmp_path, run, here):
    """No shell sees it, and what it prints is not mixed with the answer. A failure leaves the backup as it is."""
    script = "import os; open('seen', 'a').write(os.environ['MNEMOLOG_BACKUP'] + os.environ['MNEMOLOG_BACKUP_KEYS'])"
    good = shlex.join([sys.executable, "-c", f"{script}; print('copied')", "$HOME; exit 1"])
    backup = ("backup", memory, "daily", "--replace", "--keys", "kept", "--json", "--after-backup")
    for command, wrong, failed in (
        (good, False, 0),
        ("no-such-program /", True, 1),
        ("", False, 1),  # It says nothing about the one that failed.
        (f"{sys.executable} -c exit(3)", True, 2),
        (good, False, 0),
    ):
        ran = run(*backup, command)
        assert (ran.returncode, "error: the command after the backup failed" in ran.stderr) == (wrong, wrong)
        assert (bool(json.loads(ran.stdout)["notes"]), failed_commands(memory)) == (wrong, failed)
        assert last_backup(memory).path == str(tmp_path / "daily")
    assert (tmp_path / "seen").read_text() == 2 * f"{tmp_path}/daily{tmp_path}/kept"
    assert run(*backup, "a 'b").exited(2).stdout.startswith('{"error"')


@pytest.fixture
def noted(folder):
    """A store with a few turns and a segment, closed."""
    with MemoryStore.open(folder, model=HashEncoder(), background=False) as store:
        store.start_session("trip-1", title="trip")
        for n in range(5):
            store.record("trip-1", "user", f"note number{n}")
        store.recall("number1")
        store.admin.catch_up_vectors()
    return folder


def damage(memory):
    (segment,) = memory.glob("projections/vectors/*/[0-9]*-[0-9]*")
    (segment / "vectors.q12").write_bytes(b"")
    return segment


def test_status_says_what_is_wrong_and_the_command_to_copy(noted, run):
    """In words with the store's own folder, and in JSON with the same fields."""
    assert "Nothing to do" not in run("status", noted).stdout
    damage(noted)
    ran = run("status", noted)
    assert ran.returncode == 0
    assert re.search(r"vectors hash-words \w{8} +damaged +0 +6 ", ran.stdout)
    assert f"`mnemolog doctor {noted} --fix --model hash-words`" in ran.stdout
    (vectors,) = json.loads(run("status", noted, "--json").stdout)["vectors"]
    assert (vectors["state"], vectors["covers"], vectors["segments"]) == ("damaged", 0, 0)
    assert vectors["action"].startswith(f"`mnemolog doctor {noted} --fix")
    assert [segment["state"] for segment in vectors["unused"]] == ["damaged"]


def test_status_tells_of_turns_that_the_model_refused(folder, run):
    """How many in words, which and why in JSON."""
    with MemoryStore.open(folder, model=Picky(), background=False) as store:
        store.start_session("trip-1", title="trip")
        for text in ("fine", "poison", "fine too"):
            store.record("trip-1", "user", text)
        store.rebuild("vectors", skip_bad=True)
    assert "1 turn refused by the model" in run("status", folder).stdout
    (vectors,) = json.loads(run("status", folder, "--json").stdout)["vectors"]
    (refused_turn,) = vectors["skipped"]
    assert refused_turn["position"] == 3
    assert "not this" in refused_turn["why"]


def test_doctor_goes_from_one_to_zero(noted, run):
    """Looks, says what it would do, does it, finds nothing; text and JSON agree. No store is made by a look."""
    for command in (["doctor"], ["quarantine", "list"]):
        refused(run(*command, noted.parent / "nothing"), 1)
    assert run("doctor", noted).returncode == 0
    segment = damage(noted)
    looked = run("doctor", noted)
    assert looked.returncode == 1
    assert "vectors.q12 has 0 bytes" in looked.stdout
    would = run("doctor", noted, "--fix", "--dry-run")
    assert would.returncode == 1
    assert "--fix would fix this" in would.stdout
    assert segment.exists()
    found = json.loads(run("doctor", noted, "--json").stdout)
    assert (found["healthy"], found["log_damaged"]) == (False, False)
    assert [item["state"] for item in found["findings"] if item["severity"] == "problem"] == ["damaged"]
    fixed = run("doctor", noted, "--fix")
    assert fixed.returncode == 0, fixed.stdout
    assert "fixed: moved to quarantine as projections/quarantine/" in fixed.stdout
    assert not segment.exists()
    shown = run("status", noted).stdout  # Of which model they are is still known, though they have yet to be made.
    assert re.search(r"^vectors hash-words [0-9a-f]{8} +behind ", shown, re.M)
    assert f"6 events behind: `mnemolog project {noted} --model hash-words`" in shown
    assert f"`mnemolog project {noted} --model hash-words`" in run("doctor", noted).stdout
    again = run("doctor", "--deep", "--json", store=noted)
    assert again.returncode == 0
    assert json.loads(again.stdout)["healthy"]


@pytest.mark.log_file
def test_doctor_and_verify_exit_with_three_when_the_log_has_lost_history(noted, tmp_path, run):
    """An older copy of log.db under newer vectors: loud everywhere, also after the vectors were set aside."""
    with MemoryStore.open(noted, model=HashEncoder(), background=False) as store:
        older = copy_store(store.parts.log, tmp_path / "older")
        store.record("trip-1", "user", "to be lost")
        store.admin.catch_up_vectors()
    shutil.rmtree(older / "projections")
    shutil.copytree(noted / "projections" / "vectors", older / "projections" / "vectors")
    assert "WARNING: the log has lost history" in run("status", older).stdout
    assert "the log has lost history" in json.loads(run("status", older, "--json").stdout)["warnings"][0]
    for arguments in (("doctor",), ("doctor", "--fix"), ("doctor",), ("verify",)):
        ran = run(arguments[0], older, *arguments[1:])
        assert ran.returncode == 3, (arguments, ran.stdout)
        assert arguments[0] == "verify" or "THE LOG IS DAMAGED" in ran.stdout
        assert "mnemolog backup" not in ran.stdout
    assert run("quarantine", "purge", older, "--yes").returncode == 0
    assert run("doctor", older).returncode == 0


def test_the_quarantine_is_listed_and_purged_only_with_yes(noted, run):
    """Names as listed; nothing goes without --yes."""
    damage(noted)
    run("doctor", noted, "--fix")
    (item,) = json.loads(run("quarantine", "list", noted, "--json").stdout)
    assert (item["state"], item["upto"]) == ("damaged", 6)
    listed = run("quarantine", "list", noted).stdout
    assert item["name"][:20] in listed
    assert "1 item," in listed
    for arguments, code in (((), 1), (("--dry-run", "--yes"), 0)):
        ran = run("quarantine", "purge", noted, *arguments)
        assert ran.returncode == code
        assert len(json.loads(run("quarantine", "list", noted, "--json").stdout)) == 1
    ran = run("quarantine", "purge", "--yes", store=noted)
    assert (ran.returncode, "deleted 1 item" in ran.stdout) == (0, True)
    assert json.loads(run("quarantine", "list", noted, "--json").stdout) == []
