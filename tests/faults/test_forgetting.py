"""What is forgotten is in no file any more, whatever is killed, restored or open elsewhere; what is not, stays."""

import io
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from functools import partial

import msgspec
import pytest
from pysqlite3 import dbapi2

from mnemolog import LogBusy, MemoryStore, NewTurn, copy_store, restore_backup
from mnemolog.domain.events import ContentErased
from mnemolog.forgetting import service
from mnemolog.forgetting.service import STEPS
from mnemolog.infra.keys.key_tree import Node, leaves_near
from mnemolog.infra.log.postgres.address import ADDRESS_FILE
from mnemolog.projections.history import states
from mnemolog.projections.sql.embeddings import content_hash, pack
from mnemolog.projections.vectors.segment import CONTENT_BYTES
from tests.children.forgetting import DIMENSION, forget_and_die, keep_open
from tests.children.workers import wait_within
from tests.postgres import connect, put_log_in_postgres
from tests.support import WAIT_S, FakeClock, HashEncoder, StuckEncoder, in_thread, wait_until

pytestmark = pytest.mark.promise("P15")

SECRETS = ("quokka", "wombatname", "echidnavalue", "numbatnote", "bilbymeta", "possumtask", "dingocheck", "kowariquery")
"""One word for every place that content can be in."""


def encoder(number=1):
    return HashEncoder(fingerprint=f"hash-words/{number}", dimension=DIMENSION)


def fill(store, session, secrets=True):
    """A session with a word in every place that content can be in, and turns around it."""
    word = (lambda name: name) if secrets else (lambda name: f"harmless{name[:3]}")
    handle = store.start_session(session, title=word("wombatname"), scope=f"acme/{session}")
    for n in range(30):
        handle.record(
            "user",
            f"{word('quokka')} {session} number{n:02}",
            key=f"{session}{n}",
            speaker=word("wombatname").title(),
            metadata={"m": word("bilbymeta") * 8, "n": n},
        )
    handle.set("k", word("echidnavalue"))
    handle.note(word("numbatnote"))
    handle.set_task(word("possumtask"))
    checkpoint = handle.checkpoint(word("dingocheck"))
    handle.set("k", word("echidnavalue") + "2")
    handle.restore(checkpoint.id)
    store.recall(word("kowariquery"), session=session, receipt=True)
    return handle


def hits(folder, needles):
    """How often which file holds one of these."""
    return [
        (str(path.relative_to(folder)), needle, raw.count(needle))
        for path, raw in [(path, path.read_bytes()) for path in folder.rglob("*") if path.is_file()]
        for needle in needles
        if needle in raw
    ]


def vectors_of_bad():
    """The bytes of the vectors of turns that are forgotten, by every model, and of the hashes of their texts."""
    texts = [f"quokka bad number{n:02}" for n in range(30)] + ["quokka late", "quokka later", "quokka latest"]
    vectors = [vector for number in (1, 2) for vector in stored_bytes(encoder(number).encode(texts))]
    return vectors + [content_hash(text)[:CONTENT_BYTES] for text in texts]


def stored_bytes(rows):
    """The bytes of vectors in every form in which a version stores them."""
    return [row.tobytes() for row in (*rows.astype("<f4"), *pack(rows))]


def keys_of(folder):
    """All nodes that `keys.db` holds of the session, with keys of its first versions derived from them."""
    connection = dbapi2.connect(folder / "keys.db")
    rows = connection.execute("SELECT depth, prefix, material FROM nodes WHERE stream = 'session/bad'").fetchall()
    connection.close()
    nodes = [Node(depth, prefix, bytes(material)) for depth, prefix, material in rows]
    derived = leaves_near(nodes[0], 1) if nodes[0].depth == 0 else {}
    return [node.material for node in nodes], list(derived.values())


NEEDLES = [word.encode() for word in SECRETS] + [word.title().encode() for word in SECRETS]


def assert_forgotten(folder, needles=NEEDLES):
    assert hits(folder, needles) == []
    assert hits(folder, vectors_of_bad()) == []


in_both = pytest.mark.parametrize("filled", ["sqlite", "postgres"], indirect=True)
"""With the log and its keys in a folder, and in PostgreSQL."""


def made(folder):
    with MemoryStore.open(folder, model=encoder(), clock=FakeClock(), background=False) as store:
        fill(store, "bad")
        fill(store, "good", secrets=False)
        store.admin.catch_up_vectors()
        for turn in ("quokka late", "quokka later"):
            store.record("bad", "user", turn)
            store.record("good", "user", f"good {turn[7:]}")
            store.admin.catch_up_vectors()
        store.models.add(encoder(2))
        store.record("bad", "user", "quokka latest")
        store.recall("quokka latest", mode="vector")  # Embedded, and in no segment yet.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(states, "SNAPSHOT_EVERY", 20)
            for n in range(40):  # Enough changes for a snapshot of the session's state.
                store.session("bad").set("k", f"echidnavalue{n}")
            store.session("bad").all()
    return folder


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """The folder of a store that is filled and closed, to be copied."""
    return made(tmp_path_factory.mktemp("template") / "memory")


@pytest.fixture
def filled(template, tmp_path, request):
    """The folder of a store that is filled and closed."""
    folder = tmp_path / "memory"
    if getattr(request, "param", "sqlite") == "sqlite":
        return shutil.copytree(template, folder)
    put_log_in_postgres(folder, request.getfixturevalue("postgres_url"))
    return made(folder)


def reopened(folder, **options):
    return MemoryStore.open(folder, model=encoder(), background=False, **options)


def good_answers(store):
    """What the session that stays says, and what is recalled of it."""
    recalled = [store.recall("harmlessquo number07", k=70, mode=mode).hits for mode in ("text", "vector")]
    positions = [[hit.position for hit in found if hit.session == "good"] for found in recalled]
    return [turn.text for turn in store.session("good").turns()], store.session("good").all(), positions


def test_no_file_holds_what_was_forgotten(filled):
    """Words, vectors and keys, of a session with all its content, under several models: open and closed."""
    found = hits(filled, [word.encode() for word in SECRETS])
    # Receipts, checkpoints' names and the like are in the log only, where they are encrypted.
    assert {needle.decode() for _, needle, _ in found} >= {"quokka", "wombatname", "echidnavalue", "bilbymeta"}
    assert {path.split("/")[1] for path, _, _ in found} >= {"views.db", "snapshots.db"}
    in_vectors = {path.rsplit("/", 1)[-1] for path, _, _ in hits(filled, vectors_of_bad())}
    assert in_vectors >= {"vectors.q12", "contents.bin", "embeddings.db"}
    roots, derived = keys_of(filled)
    with reopened(filled) as store:
        before, head = good_answers(store), store.head()
        (filled / "projections" / "quarantine" / "old").mkdir(parents=True)
        (filled / "projections" / "quarantine" / "old" / "note").write_text("quokka")
        report = store.forget(session="bad", reason="asked for")
        assert report.complete, report.pending
        assert_forgotten(filled)
        assert hits(filled, [*roots, *derived]) == []
        assert good_answers(store) == before
        assert store.verify(expect_head=str(head), contents=True).sound
    assert_forgotten(filled)
    with reopened(filled) as store:
        store.admin.catch_up_vectors()
        assert good_answers(store) == before
        assert store.admin.doctor(deep=True).healthy
        assert store.verify(contents=True).sound
    assert_forgotten(filled)


@in_both
def test_single_turns_leave_no_trace_either(filled):
    """Their text and vectors are gone, those of the turns beside them are not."""
    with reopened(filled) as store:
        turns = store.turns("bad")
        store.forget(positions=[turns[3].position, turns[4].position])
    texts = ["quokka bad number03", "quokka bad number04"]
    vectors = stored_bytes(encoder().encode(texts))
    assert hits(filled, [text.encode() for text in texts] + vectors) == []
    assert b"quokka bad number05" in (filled / "projections" / "views.db").read_bytes()


@in_both
@pytest.mark.parametrize("step", STEPS)
def test_a_kill_at_any_step_is_gone_on_with(filled, processes, step):
    """The next process to open the store completes it; what is not forgotten is as it was."""
    with reopened(filled) as store:
        before = good_answers(store)
    process, pipe = processes.start(forget_and_die, str(filled), "bad", step)
    assert pipe.poll(WAIT_S)
    assert pipe.recv() == step
    process.join()
    assert process.exitcode == -9
    with reopened(filled) as store:
        status = store.status().forgetting
        assert (status.requests, status.pending) == (1, ())
        assert store.session("bad").turns() == []
        assert store.session("bad").all() == {}
        assert_forgotten(filled)
        assert good_answers(store) == before
        assert store.verify(contents=True).sound
        head = store.head()
    with reopened(filled) as store:
        assert store.head() == head, "nothing is done twice"
        assert store.admin.doctor().healthy


@in_both
def test_another_process_notices_and_brings_nothing_back(filled, processes, fork_server):
    """It has read, recalled and embedded before, and does so again without opening the store anew."""
    known, go_on = fork_server.Barrier(2), fork_server.Barrier(2)
    process, pipe = processes.start(keep_open, str(filled), "bad", known, go_on)
    assert pipe.poll(WAIT_S)
    turns, values, found, near = pipe.recv()
    assert len(turns) == 33
    assert values
    assert found
    assert near
    known.wait(WAIT_S)
    with reopened(filled) as store:
        assert store.forget(session="bad").complete
        assert_forgotten(filled)
        go_on.wait(WAIT_S)
        assert pipe.poll(WAIT_S)
        assert pipe.recv() == ([], {}, [], [])
        known.wait(WAIT_S)
        go_on.wait(WAIT_S)
        assert pipe.poll(WAIT_S)
        assert pipe.recv() == "closed"
    process.join()
    assert_forgotten(filled)


def test_a_model_at_work_meanwhile_brings_nothing_back(tmp_path):
    """It got the texts before they were forgotten, and is done afterwards: nothing of that is kept or written."""
    folder, slow = tmp_path / "memory", StuckEncoder("quokka", dimension=DIMENSION)
    with MemoryStore.open(folder, model=None) as store:
        fill(store, "bad")
        fill(store, "good", secrets=False)
        with MemoryStore.open(folder, model=slow, background=False) as embedding:
            working = in_thread(embedding.admin.catch_up_vectors)
            assert slow.entered.wait(WAIT_S)
            report = store.forget(session="bad")
            slow.free.set()
            working.result()
            if not report.complete:  # It held the lock on the vectors.
                assert store.forget(session="bad").request is None
            assert store.status().forgetting.pending == ()
            assert_forgotten(folder)
            embedding.admin.catch_up_vectors()
            assert {hit.session for hit in embedding.recall("harmlessquo", mode="vector", k=50).hits} == {"good"}
    assert_forgotten(folder)


def copies_of(folder, target, *names):
    """Copy files of a closed store."""
    target.mkdir()
    for name in names:
        shutil.copy(folder / name, target / name)


def put_back(folder, kept):
    for path in kept.iterdir():
        for part in ("-wal", "-shm"):
            path.with_name(path.name + part).unlink(missing_ok=True)
        shutil.copy(path, folder / path.name)


@pytest.mark.parametrize("names", [("log.db",), ("keys.db",), ("log.db", "keys.db")], ids=lambda names: "+".join(names))
def test_what_was_forgotten_stays_so_when_older_copies_are_restored(filled, tmp_path, names):
    """By opening, where the other file knows of it; by handing in the erasures, where neither does."""
    copies_of(filled, tmp_path / "kept", *names)
    shutil.copytree(filled / "projections", tmp_path / "projections")
    with reopened(filled) as store:
        store.record("good", "user", "after the copy")
        assert store.forget(session="bad", reason="asked for").complete
        erasures = store.audit.erasures()
    put_back(filled, tmp_path / "kept")
    shutil.rmtree(filled / "projections")
    shutil.copytree(tmp_path / "projections", filled / "projections")
    with reopened(filled) as store:
        if "log.db" in names:
            store.admin.doctor(accept_loss=True, reason="an older copy")
        if len(names) == 2:
            assert store.session("bad").turns(), "nobody knows"
            report = store.admin.reapply_erasures(erasures)
            assert (report.erasures, report.requested, report.pending) == (1, 1, None)
        assert store.session("bad").turns() == []
        assert_forgotten(filled)
        assert store.verify(contents=True).sound
        assert [item.reason for item in store.audit.forgotten()] == ["asked for"] * len(store.audit.forgotten())
        assert len(store.audit.forgotten()) > 40
        store.record("bad", "user", "goes on")
        store.recall("good", session="good", receipt=True)
        assert [turn.text for turn in store.session("bad").turns()] == ["goes on"]
        assert store.status().forgetting.pending == ()
        head = store.head()
    with reopened(filled) as store:
        assert store.head() == head
        assert [turn.text for turn in store.session("bad").turns()] == ["goes on"]


def test_a_restored_log_takes_new_turns_where_forgotten_ones_were(tmp_path):
    """Their keys are destroyed, so they get others; erasing again what was asked for then leaves them alone.

    Forgetting the session takes what was encrypted with the former keys and with the new ones.
    """
    folder = tmp_path / "memory"
    with MemoryStore.open(folder, model=None) as store:
        store.start_session("s").record("user", "first")
    copies_of(folder, tmp_path / "kept", "log.db")
    with MemoryStore.open(folder, model=None) as store:
        lost = store.record("s", "user", "second")
        store.record("s", "user", "third")
        store.forget(positions=[lost.position])
    put_back(folder, tmp_path / "kept")
    shutil.rmtree(folder / "projections")
    with MemoryStore.open(folder, model=None) as store:
        store.admin.doctor(accept_loss=True, reason="an older copy")
        for text in ("second anew", "third anew"):
            store.record("s", "user", text)
        assert [turn.text for turn in store.turns("s")] == ["first", "second anew", "third anew"]
        store.rebuild("views")
        assert [turn.text for turn in store.turns("s")] == ["first", "second anew", "third anew"]
        assert store.verify(contents=True).sound
        assert store.forget(session="s").complete
        left = str([item.event for item in store.events()])
        assert [text for text in ("first", "second anew", "third anew") if text in left] == []


def test_a_reader_that_keeps_the_log_of_changes_is_waited_for_later(filled):
    """The keys are gone at once; what is pending is said, and done when the store is opened next."""
    reading = dbapi2.connect(filled / "projections" / "views.db", isolation_level=None)
    reading.execute("BEGIN")
    reading.execute("SELECT count(*) FROM turns").fetchone()
    with reopened(filled, busy_timeout_s=0.2) as store:
        report = store.forget(session="bad")
        assert report.pending
        assert store.session("bad").turns() == []
        assert store.status().forgetting.pending == (report.request,)
        assert any("not complete" in warning for warning in store.status().warnings)
    reading.execute("ROLLBACK")
    reading.close()
    with reopened(filled) as store:
        assert store.status().forgetting.pending == ()
    assert_forgotten(filled)


HOLD = """
import sys
from pysqlite3 import dbapi2
reading = dbapi2.connect(sys.argv[1], isolation_level=None)
reading.execute("BEGIN")
reading.execute("SELECT count(*) FROM nodes").fetchone()
print("reading", flush=True)
sys.stdin.read()
"""


@contextmanager
def reader_of_keys(folder, url):
    """Another process that has begun to read the keys, in a file or in PostgreSQL, and does not end."""
    if (folder / "keys.db").exists():
        command = [sys.executable, "-c", HOLD, str(folder / "keys.db")]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
            assert child.stdout.readline()
            yield
            child.stdin.close()
    else:
        with connect(url) as database:
            database.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            database.execute("SELECT count(*) FROM mnemolog_keys.nodes").fetchone()
            database.execute("SELECT count(*) FROM mnemolog_keys.meta").fetchone()
            yield


def all_answers(store):
    """What every call that reads contents says, as text."""
    bad = store.session("bad")
    asked = " ".join(SECRETS)
    said = [store.recall(asked, k=200, mode=mode).hits for mode in ("text", "vector", "hybrid")]
    said += [store.context(asked, session="bad", tokens=4_000).blocks, bad.recall(asked, k=50).hits, bad.all()]
    said += [store.turns("bad"), bad.turns(), bad.notes(), bad.task(), bad.checkpoints(), store.sessions()]
    said += [store.find(word, hidden=True) for word in SECRETS]
    said += [list(store.audit.timeline()), store.audit.receipts(), list(store.events()), store.replay()]
    export = io.BytesIO()
    store.audit.export(export)
    return msgspec.json.encode(said, enc_hook=repr).decode() + export.getvalue().decode()


@in_both
@pytest.mark.parametrize("who", ["the store that forgot", "another one"])
def test_keys_that_cannot_be_wiped_yet_delay_nothing_but_that(filled, tmp_path, monkeypatch, postgres_url, who):
    """From the moment that the call returns no open store or node answers with it. The wipe is done without a restart
    once the reader is gone, by whoever has the store open."""
    monkeypatch.setattr(service, "retry_delay_s", lambda _: 3_600.0)  # One try of each store while it is read.
    monkeypatch.setattr(service, "RETRY_S_MAX", 0.0)
    beside = filled
    if not (filled / "keys.db").exists():
        beside = tmp_path / "node"
        beside.mkdir()
        shutil.copy(filled / ADDRESS_FILE, beside)
    with reopened(filled, busy_timeout_s=0.2) as store, reopened(beside, busy_timeout_s=0.2) as other:
        assert all(word in all_answers(each) for each in (store, other) for word in SECRETS)
        with reader_of_keys(filled, postgres_url):
            report = store.forget(session="bad")
            assert report.pending == "wiping the keys: another process is reading them"
            assert not report.complete
            (says,) = (item.says for item in report.certificate.remains if item.kind == "files")
            assert report.pending in says
            for each in (store, other):
                answers = all_answers(each)
                assert [word for word in SECRETS if word in answers.lower()] == []
                assert each.status().forgetting.pending == (report.request,)
                assert [item.complete for item in each.audit.pending_erasures()] == [False]
        carrying_on = store if who == "the store that forgot" else other
        monkeypatch.setattr(service, "retry_delay_s", lambda _: 0.0)
        carrying_on.parts.forgetting._retry_at = 0.0
        if carrying_on is other:
            store.close()
        wait_until(
            lambda: carrying_on.recall("x") is not None and not carrying_on.status().forgetting.pending, what="the wipe"
        )
        assert carrying_on.verify(contents=True).sound
        erased = [item for item in carrying_on.events() if isinstance(item.event, ContentErased)]
        assert len(erased) == 3  # Trying again adds none: of the session, of its receipt, of the request.
    assert_forgotten(filled)


def test_many_random_wishes_against_a_list(tmp_path, rng):
    """Sessions, scopes and positions in any order, with turns in between: what is left is what a list says."""
    folder, alive = tmp_path / "memory", {}
    store = MemoryStore.open(folder, model=encoder(), background=False)
    for number in range(4):
        store.start_session(f"s{number}", scope=f"x/{number % 2}")
    for turn in range(25):
        session = f"s{rng.randrange(4)}"
        batch = [NewTurn(session=session, role="user", text=f"word{turn}x{n} quoll") for n in range(rng.randint(1, 6))]
        alive |= {made.position: made for made in store.record_many(batch)}
        action = rng.random()
        if action < 0.3:
            gone = rng.sample(sorted(alive), min(len(alive), rng.randint(1, 4)))
            store.forget(positions=gone)
            alive = {position: made for position, made in alive.items() if position not in gone}
        elif action < 0.4:
            store.forget(session=session)
            alive = {position: made for position, made in alive.items() if made.session != session}
        elif action < 0.45:
            store.forget(scope="x/1")
            alive = {position: made for position, made in alive.items() if made.scope != "x/1"}
        elif action < 0.6:
            store.admin.catch_up_vectors()
        elif action < 0.7:
            store.close()
            store = MemoryStore.open(folder, model=encoder(), background=False)
        seen = [turn.text for number in range(4) for turn in store.turns(f"s{number}")]
        assert sorted(seen) == sorted(made.text for made in alive.values())
        assert {hit.position for hit in store.recall("quoll", k=200).hits} == set(alive)
    dead = {made.text for made in store.turns("s0")} - {made.text for made in alive.values()}
    assert not dead
    assert store.verify(contents=True).sound
    assert store.admin.doctor(deep=True).healthy
    store.close()


def of_processes(folder):
    """What is under a temporary name of a process, in folders and in files."""
    return [path for path in folder.rglob(".*") if re.fullmatch(r"\.[a-z]+\.\d+\.[0-9a-f]{8}", path.name)]


@pytest.mark.parametrize("work", ["read", "backup", "restore", "copy"])
def test_content_that_a_killed_process_left_elsewhere_is_deleted(filled, tmp_path, processes, monkeypatch, work):
    """By the next one that does the same, or by a forgetting. What a running process has stays."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    place = partial("{}-{}".format, filled)
    with reopened(filled) as store:
        store.backup(place("backup"), keys=place("keys"))
    (killed, _), (running, _) = [
        (process, pipe)
        for process, pipe in (processes.start(wait_within, str(filled), work, tempfile.tempdir) for _ in range(2))
        if pipe.poll(WAIT_S) and pipe.recv() == "there"
    ]
    left = of_processes(tmp_path)
    assert len(left) == 2, left
    killed.kill()
    killed.join()
    if work == "restore":
        restore_backup(place("backup"), place("next"), keys=place("keys"))
    elif work == "copy":
        copy_store(filled, place("copy"))
    with reopened(place("copy") if work == "copy" else filled) as store:
        if work == "backup":
            store.backup(place("next"))
        assert store.forget(session="bad").complete
    assert [path.name.split(".")[2] for path in of_processes(tmp_path)] == [str(running.pid)]


def test_keys_that_cannot_be_destroyed_are_an_error_and_tried_again(filled, monkeypatch):
    """The call does not return as if it were done. Once they can be, the next read of an open store completes it."""
    monkeypatch.setattr(service, "retry_delay_s", lambda _: 0.0)
    writing = dbapi2.connect(filled / "keys.db", isolation_level=None)
    writing.execute("BEGIN IMMEDIATE")
    with reopened(filled, busy_timeout_s=0.2) as store:
        with pytest.raises(LogBusy) as caught:
            store.forget(session="bad")
        assert "the request is recorded" in str(caught.value.hint)
        assert store.status().forgetting.pending
        writing.execute("ROLLBACK")
        writing.close()
        wait_until(lambda: store.recall("x") is not None and not store.status().forgetting.pending, what="the request")
        assert store.session("bad").turns() == []
    assert_forgotten(filled)
