"""Files that are being written, cut off, replaced; a process that is killed, two at once: each turn once.

Random conversations of both agents, read at random moments, compared with a model of each session's state.
"""

import signal
import subprocess
import sys
from hashlib import blake2b
from pathlib import Path

import pytest

from mnemolog import MemoryStore, restore_backup
from mnemolog.adapters.importers import import_files
from mnemolog.adapters.importers.transcripts import Transcripts, reading
from mnemolog.adapters.importers.transcripts.reading import LOCK_FILE
from mnemolog.infra.runtime.files import lock_file
from tests.e2e.transcripts.conftest import files_in
from tests.e2e.transcripts.written import Claude, Codex, Transcript
from tests.support import in_thread, summary

A, B = (f"{letter * 8}-0000-4000-8000-000000000001" for letter in "ab")


@pytest.fixture
def talk(projects):
    """A transcript with one question."""
    talk = Claude(projects, A)
    talk.say("Hello.")
    return talk


def texts_in(store, session):
    return [turn.text for turn in store.session(session).turns()]


def test_a_half_written_line_waits_for_its_end(talk, read, said):
    """It is not refused, however often it is read."""
    talk.answer("A long answer.")
    whole = talk.path.read_text()
    for cut in (len(whole) - 200, len(whole) - 100, len(whole) - 3):
        talk.path.write_text(whole[:cut])
        assert read().refused == 0
    assert said(A) == ["Hello."]
    talk.path.write_text(whole)
    read()
    talk.say("Thanks.")
    read()
    assert said(A) == ["Hello.", "A long answer.", "Thanks."]


def test_a_complete_last_line_needs_no_line_end(talk, read, said):
    """JSON is complete with its last bracket."""
    talk.path.write_text(talk.path.read_text().rstrip("\n"))
    assert read().recorded == 1
    talk.path.write_text(talk.path.read_text() + "\n")
    talk.answer("Hi.")
    assert read().recorded == 1
    assert said(A) == ["Hello.", "Hi."]


def test_a_bad_line_is_named_and_skipped(talk, projects, read, said):
    """Not JSON, not an object, an invalid time, too long a text; nor does an id that is too long stop anything."""
    Claude(projects, "x" * 300, file="long").say("Never said.")
    talk.put("{oops", "[]", "")
    talk.say("Never said.", timestamp="yesterday-ish")
    talk.say("x" * ((1 << 20) + 1))
    talk.answer("Hi.")
    report = read()
    assert (report.recorded, report.refused) == (2, 5)
    named = [
        refusal.split(f"{talk.path}:")[1].split(":")[0] for refusal in report.refusals if str(talk.path) in refusal
    ]
    assert named == ["2", "3", "5", "6"]
    assert said(A) == ["Hello.", "Hi."]


@pytest.mark.parametrize("cut", [False, True])
def test_several_objects_on_a_line_are_all_read(projects, read, said, cut):
    """Two programs may write at once, or one may go on where another stopped: only what is cut is lost, and named."""
    talk = Claude(projects, A)
    talk.say("Why?")
    talk.answer("The lid.")
    talk.say("Close it.")
    first, *others = talk.path.read_text().splitlines()
    talk.path.write_text((first[:-30] if cut else first) + "".join(others) + "\n")
    report = read()
    assert said(A) == ["Why?", "The lid.", "Close it."][cut:]
    assert report.refused == cut


def test_doctor_and_verify_find_nothing_wrong_after_reading(talk, memory, read):
    """The tables of offsets are known to the store."""
    talk.compact()
    talk.say("And now?")
    read()
    memory.admin.catch_up_views()
    assert [item.what for item in memory.admin.doctor().findings] == ["backup"], "there is none"
    assert memory.verify(contents=True).findings == ()


def test_a_file_that_was_truncated_or_replaced_is_read_from_the_beginning(projects, memory, read, said):
    """Keys show what is new."""
    talk = Claude(projects, A)
    for number in range(5):
        talk.say(f"question {number}")
    read()
    lines = talk.path.read_text().splitlines(keepends=True)
    talk.path.write_text("".join(lines[:2]))
    assert read().recorded == 0
    talk.last = "aaaaaa-0005"
    talk.say("after the cut")
    assert read().recorded == 1
    talk.path.write_text("".join(reversed(lines)))
    report = read()
    assert (report.recorded, report.lines) == (0, 5)
    assert sorted(turn.text for turn in memory.turns(A)) == ["after the cut", *(f"question {n}" for n in range(5))]


def test_a_file_that_disappears_is_skipped(projects, memory, read, monkeypatch):
    """Before its size is read, and between that and its opening."""
    talk, other = Claude(projects, A), Claude(projects, B)
    talk.say("Hello.")
    other.say("Hello.")
    looked = Transcripts._changed
    monkeypatch.setattr(Transcripts, "_changed", lambda *args: [looked(*args), talk.path.unlink()][0])
    assert read().recorded == 1
    assert summary(memory, B).turns == 1


def test_other_files_are_skipped_unless_their_format_is_named(projects, memory, read, said):
    """JSON Lines need it; generated keys continue their numbering."""
    plain = Transcript(projects / "chat.jsonl")
    plain.put({"role": "user", "text": "Hello."}, {"role": "assistant", "text": "Hello."})
    assert read().lines == 0
    assert read(format="jsonl", scope="ada").recorded == 2
    plain.put({"role": "user", "text": "Hello."}, {"role": "user", "text": ""})
    report = read(format="jsonl")
    assert (report.recorded, report.left_out) == (1, {"empty": 1})
    assert said("chat") == ["Hello."] * 3
    assert memory.session("chat").scope == "ada"


@pytest.mark.parametrize("way", ["import", "watch", "interrupted"])
def test_lines_without_ids_are_recognised_where_their_keys_are_others(projects, memory, way, monkeypatch):
    """Lines were inserted or deleted, or an earlier version made keys from texts: none comes twice, or comes back."""
    secret, chat = memory.parts.log.keyring.secret(), memory.session("chat")
    for text, key in (("old", ""), ("gone", ""), ("yes", ""), ("yes", "-2"), ("later", "")):
        digest = blake2b(f"user\0\0{text}".encode(), key=secret, digest_size=12).hexdigest()
        chat.record("user", text, key=digest + key)
    memory.forget(positions=[chat.turns()[1].position])
    texts = ["new", "old", "gone", "yes", "yes", "yes", "later"]
    Transcript(path := projects / "chat.jsonl").put(*({"role": "user", "text": text} for text in texts))
    monkeypatch.setattr(reading, "LINES_MAX", 3)
    for recorded in (2, 0):
        if way == "import":
            assert import_files(memory, path).recorded == recorded
            continue
        found = 0
        for _ in range(2):
            with Transcripts(memory, format="jsonl") as transcripts:
                stop = transcripts.stop.set if way == "interrupted" else int
                found += transcripts.catch_up([path], progress=lambda *_, stop=stop: stop()).recorded
                transcripts.stop.clear()
                found += transcripts.catch_up([path]).recorded
        assert found == recorded
    assert [turn.text for turn in chat.turns()] == ["old", "yes", "yes", "later", "new", "yes"]


def test_one_process_reads_at_a_time(folder, projects, memory):
    """The other waits for it, and ends at once when `stop` is set."""
    Claude(projects, A).say("Hello.")
    with (
        MemoryStore.open(folder, model=None, background=False) as store,
        Transcripts(store) as two,
    ):
        held = lock_file(folder / "projections" / LOCK_FILE)
        with held:
            waiting = in_thread(lambda: two.catch_up(files_in(projects)))
            waiting.thread.join(0.3)
            assert waiting.running
            assert memory.sessions() == []
        assert waiting.result().recorded == 1
        Claude(projects, A).answer("Hi.")
        with held:
            waiting = in_thread(lambda: two.catch_up(files_in(projects)))
            two.stop.set()
            assert waiting.result(1.0).recorded == 0


@pytest.mark.local
def test_offsets_of_a_log_that_lost_its_end_are_dropped(talk, folder, tmp_path):
    """After a restore from a backup, what was read since is recorded again."""
    with (
        MemoryStore.open(folder, model=None, background=False, encrypt=False) as store,
        Transcripts(store) as transcripts,
    ):
        transcripts.catch_up([talk.path])
        store.backup(tmp_path / "backup")
        talk.answer("Hi.")
        transcripts.catch_up([talk.path])
        places = {p.name: p.read_bytes() for p in (folder / "projections").glob("watch.db*")}
    back = tmp_path / "back"
    restore_backup(tmp_path / "backup", back)
    (back / "projections").mkdir(exist_ok=True)
    for name, data in places.items():
        (back / "projections" / name).write_bytes(data)
    with MemoryStore.open(back, model=None, background=False) as store, Transcripts(store) as transcripts:
        assert transcripts.catch_up([talk.path]).recorded == 1
        assert texts_in(store, A) == ["Hello.", "Hi."]


def test_forgetting_keeps_the_numbering_of_equal_turns(projects, rollouts, memory, read, said):
    """It drops the offsets; the same words later are still another turn."""
    rollout = Codex(rollouts, A)
    rollout.say("again")
    with Transcripts(memory) as transcripts:
        transcripts.catch_up([rollout.path])
        memory.forget(session=A)
        rollout.say("again")
        assert transcripts.catch_up([rollout.path]).recorded == 1
    rollout.say("again")
    assert read().recorded == 1
    assert said(A) == ["again", "again"]


def test_a_killed_reader_loses_and_repeats_nothing(folder, projects, rollouts, rng):
    """However often, at any moment: each turn exactly once, in order."""
    talk, rollout = Claude(projects, A), Codex(rollouts, B)
    for number in range(400):
        talk.say(f"question {number}")
        rollout.say(f"task {number % 3}")
        if number % 50 == 49:
            talk.compact()
            rollout.compact()
    script = Path(__file__).with_name("dying.py")
    for _ in range(2):  # Two at a time: one continues the work of the other.
        steps = [str(rng.randrange(1, 50)) for _ in range(2)]
        dying = [subprocess.Popen([sys.executable, script, folder, projects, rollouts, step]) for step in steps]
        ends = [child.wait(timeout=60) for child in dying]
        assert set(ends) <= {0, -signal.SIGKILL}
    with MemoryStore.open(folder, model=None, background=False) as store:
        with Transcripts(store) as transcripts:
            transcripts.catch_up(files_in(projects, rollouts))
        assert texts_in(store, A) == [f"question {number}" for number in range(400)]
        assert texts_in(store, B) == [f"task {number % 3}" for number in range(400)]
        kinds = [switch.event.reason for switch in store.events() if switch.event.topic == "session.switched.v1"]
        assert (kinds.count("new"), kinds.count("compress")) == (2, 14)
        assert store.verify().findings == ()


def test_offsets_that_are_purged_while_a_file_is_read_lose_no_link(read, said, projects, memory, monkeypatch):
    """A line that continues one without a turn, which only the offsets know of, is not recorded until they do again."""
    talk = Claude(projects, A)
    talk.say("Boil the kettle.")
    hook = talk.hook()
    talk.say("Now the tea.")
    read()
    secret = memory.session("other").record("user", "a secret")
    talk.say("Boil it slowly.", after=hook)
    begin = reading.begin

    def forgotten_meanwhile(*arguments, **options):
        reading = begin(*arguments, **options)
        if memory.session("other").turns():
            memory.forget(positions=[secret.position])
        return reading

    monkeypatch.setattr(reading, "begin", forgotten_meanwhile)
    read()
    read()
    assert said(A) == ["Boil the kettle.", "Boil it slowly."]


STEPS, SCRIPTS = 60, 4


class ClaudeTalks:
    """Sessions of Claude Code, and what each shows. A session shows the path to the line it was last asked on.

    `read` is called before a session is forked: of two that are new to a store, the one that was written to last is
    taken for the fork (ADR 24).
    """

    agent = Claude

    def __init__(self, folder, rng, read):
        self.folder, self.rng, self.read = folder, rng, read
        self.talks: dict[str, Claude] = {}
        self.paths: dict[str, list[tuple[str, str, str]]] = {}
        """By session: uuid, who, text."""
        self.texts = 0

    def text(self):
        self.texts += 1
        return self.rng.choice(["go on", "again", f"text {self.texts}"])

    def new(self):
        session = f"{len(self.talks):06}-{self.agent.__name__}"
        self.talks[session] = self.agent(self.folder, session)
        self.paths[session] = []
        self.ask(session)

    def ask(self, session):
        text = self.text()
        self.paths[session].append((self.talks[session].say(text), "user", text))

    def answer(self, session):
        text = self.text()
        self.paths[session].append((self.talks[session].answer(text), "assistant", text))

    def hook(self, session):
        self.talks[session].hook()

    def call(self, session):
        talk, path = self.talks[session], self.paths[session]
        number = f"t{self.texts}"
        first = talk.call("Bash", f"{number}a")
        second = talk.call("Read", f"{number}b")
        for after, result in ((first, "one"), (second, "two")):
            path.append((talk.result(result, f"{number}{result}", after=after), "tool", result))
        path[-2:-2] = [(first, "assistant", "[tool call: Bash]"), (second, "assistant", "[tool call: Read]")]

    def compact(self, session):
        self.talks[session].compact()

    def edit(self, session):
        """Ask something else in place of an earlier question, not the first one."""
        path = self.paths[session]
        asked = [number for number, (_, who, _) in enumerate(path) if who == "user" and number]
        if asked:
            at = self.rng.choice(asked)
            del path[at:]
            self.talks[session].last = path[-1][0]
            self.ask(session)

    def fork(self, session):
        self.read()
        path, talk = self.paths[session], self.talks[session]
        name = f"{len(self.talks):06}-claude"
        at = self.rng.randrange(len(path))
        other = Claude(self.folder, name)
        kept = {uuid for uuid, _, _ in path[: at + 1]}
        for row in talk.rows:
            if row["uuid"] in kept or not {"message"} <= row.keys():
                origin = {"forkedFrom": {"sessionId": session, "messageUuid": row["uuid"]}}
                other.rows.append(row | {"sessionId": name} | (origin if self.rng.random() < 0.5 else {}))
                other.put(other.rows[-1])
            if row["uuid"] == path[at][0]:
                break
        other.last = path[at][0]
        self.talks[name], self.paths[name] = other, path[: at + 1]
        self.ask(name)

    def write_again(self, session):
        """Copies of the first lines, as a second compaction leaves them."""
        talk = self.talks[session]
        talk.put(*talk.rows[: self.rng.randrange(1, len(talk.rows) + 1)])

    def side(self, session):
        number = self.texts
        self.texts += 1
        side = Claude(self.folder, session, file=f"{session}/subagents/agent-{number}")
        text = f"side {number}"
        side.say(text, uuid=f"side-{session}-{number}", isSidechain=True, agentId=str(number))
        self.paths[f"{session}/{number}"] = [("", "user", text)]

    def step(self):
        if not self.talks or self.rng.random() < 0.05:
            self.new()
            return
        ways = (self.ask, self.answer, self.answer, self.hook, self.call, self.compact, self.edit, self.fork)
        self.rng.choice((*ways, self.ask, self.write_again, self.side))(self.rng.choice(list(self.talks)))

    def shown(self):
        return {session: [text for _, _, text in path] for session, path in self.paths.items()}


class CodexTalks(ClaudeTalks):
    """Sessions of Codex, whose lines have no uuid."""

    agent = Codex

    def hook(self, session):
        self.talks[session].context("<cwd>/tmp</cwd>")

    def call(self, session):
        self.talks[session].call("shell", "c1")
        self.talks[session].result("done", "c1")
        self.paths[session] += [("", "assistant", "[tool call: shell]"), ("", "tool", "done")]

    def edit(self, session):
        path = self.paths[session]
        asked = [number for number, (_, who, _) in enumerate(path) if who == "user"]
        if asked:
            count = self.rng.randrange(1, len(asked) + 1)
            self.talks[session].undo(count)
            del path[asked[-count] :]

    def fork(self, session):
        name = f"{len(self.talks):06}-codex"
        self.talks[name] = self.talks[session].fork(self.folder, name, says=f"fork {name}")
        self.paths[name] = [*self.paths[session], ("", "user", f"fork {name}")]

    def write_again(self, session):
        self.answer(session)

    def side(self, session):
        name = f"{len(self.talks):06}-codex"
        source = {"subagent": {"thread_spawn": {"parent_thread_id": session}}}
        self.talks[name], self.paths[name] = Codex(self.folder, name, source=source), []
        self.ask(name)


@pytest.mark.parametrize("script", range(SCRIPTS))
@pytest.mark.parametrize("kind", [ClaudeTalks, CodexTalks])
def test_sessions_agree_with_what_the_agents_did(projects, memory, read, rng, kind, script):
    """Whenever it is read, from any offset; reading from the beginning adds nothing."""
    talks = kind(projects, rng, read)
    for _ in range(STEPS):
        talks.step()
        if rng.random() < 0.3:
            read()
            if rng.random() < 0.2:
                for path in (memory.path / "projections").glob("watch.db*"):
                    path.unlink()
    assert read().refused == 0
    shown = {item.session: [turn.text for turn in memory.session(item.session).turns()] for item in memory.sessions()}
    assert shown == talks.shown()
