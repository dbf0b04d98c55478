"""Random conversations of both agents, read at random moments, compared with a model of each session's state."""

import pytest

from tests.e2e.transcripts.written import Claude, Codex

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
