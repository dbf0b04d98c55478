"""A provider as Hermes has it: behind its own memory manager, called as run_agent, its CLI and its gateway call it."""

from typing import Any

from agent.memory_manager import MemoryManager

from mnemolog import MemoryStore
from mnemolog.adapters.hermes import MnemologProvider, config
from mnemolog.adapters.hermes.config import Config, file
from tests.support import WAIT_S


def read(home) -> Config:
    """What is configured."""
    return config.read(file(home))


def save(values, home) -> None:
    """Configure."""
    config.change(file(home), values)


class Hermes:
    """One agent: a manager with one provider, and the transcript that Hermes keeps of its session.

    Each method does what Hermes 0.19.0 does with the manager at that moment, with the same arguments.
    """

    def __init__(self, home, *, model: Any = None, **about: Any) -> None:
        self.home, self.manager, self.about = home, MemoryManager(), about
        self.provider = MnemologProvider(model=model)
        self.manager.add_provider(self.provider)
        self.session, self.messages, self.turns = "", list[dict[str, Any]](), 0

    def begin(self, session: str) -> None:
        """agent_init: the provider is initialised once."""
        self.session = session
        about = {"platform": "cli", "agent_context": "primary", "agent_identity": "default", **self.about}
        self.manager.initialize_all(session_id=session, hermes_home=str(self.home), **about)

    def ask(self, message: str) -> str:
        """turn_context: a turn begins. What is returned is put before the model."""
        self.turns += 1
        self.manager.on_turn_start(self.turns, message)
        return self.manager.prefetch_all(message)

    def answered(self, message: str, answer: str, *, wait: bool = True) -> None:
        """turn_finalizer: a turn is over."""
        self.messages += [{"role": "user", "content": message}, {"role": "assistant", "content": answer}]
        self.manager.sync_all(message, answer, session_id=self.session, messages=list(self.messages))
        self.manager.queue_prefetch_all(message, session_id=self.session)
        if wait:
            assert self.manager.flush_pending(WAIT_S)

    def say(self, message: str, answer: str) -> str:
        """A whole turn; what it called to mind."""
        found = self.ask(message)
        self.answered(message, answer)
        return found

    def new(self, session: str) -> None:
        """cli.new_session: end and switch are one task of the manager's worker."""
        self.manager.commit_session_boundary_async(
            self.messages, new_session_id=session, parent_session_id=self.session, reason="new_session"
        )
        self._at(session, [])
        assert self.manager.flush_pending(WAIT_S)

    def resume(self, session: str, messages: list[dict[str, Any]]) -> None:
        """cli_commands_mixin: /resume."""
        self.manager.on_session_switch(session, parent_session_id=self.session, reset=False, reason="resume")
        self._at(session, messages)

    def branch(self, session: str) -> None:
        """cli_commands_mixin: /branch. The transcript is copied."""
        self.manager.on_session_switch(session, parent_session_id=self.session, reset=False, reason="branch")
        self._at(session, self.messages)

    def compress(self, session: str | None = None) -> str:
        """conversation_compression: in place, or into another session."""
        told = self.manager.on_pre_compress(self.messages)
        self.manager.on_session_end(self.messages)
        to = session or self.session
        self.manager.on_session_switch(to, parent_session_id=self.session, reset=False, reason="compression")
        self._at(to, [{"role": "user", "content": "[a summary]"}, *self.messages[-2:]])
        return told

    def undo(self, turns: int = 1) -> None:
        """cli.undo_last: the manager is not told how many."""
        users = [place for place, message in enumerate(self.messages) if message["role"] == "user"]
        self.messages = self.messages[: users[-turns]]
        self.manager.on_session_switch(self.session, parent_session_id="", reset=False, rewound=True)

    def leave(self) -> None:
        """run_agent.shutdown_memory_provider."""
        self.manager.on_session_end(self.messages)
        self.manager.shutdown_all()

    def store(self) -> MemoryStore:
        """Another look at the log, as of another process."""
        return MemoryStore.open(read(self.home).store(self.home), model=None, create=False)

    def _at(self, session: str, messages: list[dict[str, Any]]) -> None:
        self.session, self.messages = session, list(messages)
        self.turns = sum(message["role"] == "user" for message in messages)


def said(store: MemoryStore, session: str) -> list[str]:
    """All that was recorded under a session, hidden or not."""
    return [turn.text for turn in store.turns(session)]


def seen(store: MemoryStore, session: str) -> list[str]:
    """All that a session sees."""
    return [turn.text for turn in store.session(session).turns()]
