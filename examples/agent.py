"""An agent with a memory, and no provider key: its model echoes. python examples/agent.py [--with-model]"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from mnemolog import Hit, MemoryStore, Session

AGENT = "assistant"


def echo_model(said: str, remembered: Sequence[Hit]) -> str:
    """Stand in for a language model: say what was said, and what came to mind."""
    return f"You said: {said}" + "".join(f" I remember: {hit.text}" for hit in remembered[:1])


class Agent:
    """Records every turn, looks things up while the user types, and answers from what it remembers."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.session = store.current(AGENT) or self.begin("hello")  # After a restart it continues where it was.

    def begin(self, name: str) -> Session:
        """Begin another conversation. A prefetch for the old one is dropped."""
        self.session = self.store.switch(reason="new", agent=AGENT, title=name, scope="examples/alice")
        return self.session

    def expect(self, hint: str) -> None:
        """Begin to look up what may be needed for the next answer, in the background."""
        self.session.prefetch(hint, k=3, mode=mode)

    def say(self, text: str) -> str:
        """Answer the user."""
        self.session.record("user", text, speaker="Alice")
        taken = self.session.prefetch_result(wait_s=5.0)
        hits = self.session.recall(text, k=3, mode=mode).hits if taken.recall is None else taken.recall.hits
        answer = echo_model(text, [hit for hit in hits if hit.role == "user"])
        self.session.record("assistant", answer)
        return answer


mode = "hybrid" if "--with-model" in sys.argv else "text"
model = "all-MiniLM-L6-v2" if mode == "hybrid" else None

with tempfile.TemporaryDirectory() as folder, MemoryStore.open(Path(folder) / "memory", model=model) as store:
    agent = Agent(store)
    agent.say("I moved to Lisbon in March.")
    agent.say("My dog Nero hates the stairs.")
    agent.expect("the dog and the stairs")
    print(agent.say("What about the stairs?"))

    agent.expect("the dog")
    first, _ = agent.session, agent.begin("flights")
    print("the new session was handed:", agent.session.prefetch_result().recall)  # Nothing of the old one.

    agent.session.set("budget", 900)
    agent.session.set_task("book a flight", step=1, total=2)
    before = agent.session.checkpoint("before booking")
    agent.say("Book the flight at six in the morning.")
    agent.session.set("budget", 120)
    agent.session.restore("before booking")
    print("after the restore:", agent.session.get("budget"), [turn.text for turn in agent.session.turns()])

    found = store.recall("where does she live? Lisbon", k=1, mode=mode, scope="examples").hits[0]
    print(f"recalled: {found.text!r}, position {found.position}, session {found.session == first.id}")

    chat = agent.begin("facts")
    said = chat.record("user", "I moved to Porto in June.", speaker="Alice")
    chat.assert_fact("user/city", "Lisbon", valid_from="2026-03", because=[found.position])
    chat.assert_fact("user/city", "Porto", valid_from="2026-06", because=[said])
    lived = (store.fact("user/city", scope=chat.scope, valid_at=at) for at in ("2026-04", "2026-07"))
    print("lived in:", [fact.value for fact in lived if fact is not None])
    print("said before, no longer so:", [hit.text for hit in chat.recall("Lisbon", mode=mode) if hit.superseded_by])

    print(f"there were {len(store.replay(to=before.position).sessions)} sessions at position {before.position}")
    print("sound:", store.verify().sound)
