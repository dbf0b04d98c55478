"""Hermes' memory provider: what it is told is in the log when it returns, under the session that Hermes names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote
from uuid import uuid4

from mnemolog.adapters.hermes import config
from mnemolog.adapters.hermes.backup import backup_beside
from mnemolog.adapters.hermes.config import NAME, Config
from mnemolog.adapters.hermes.settings import change_settings, read_settings
from mnemolog.adapters.support.agent_tools import conversation_tools
from mnemolog.adapters.support.context import MESSAGE_CHARS_MAX, WAIT_S, context_for, line_of
from mnemolog.adapters.support.framework_sessions import get_or_start_session, record_many_reopening
from mnemolog.adapters.support.outbox import Outbox
from mnemolog.adapters.support.rewind_to_transcript import flag_pending_undo, has_pending_undo, rewind_to_transcript
from mnemolog.adapters.support.shared_store import acquire
from mnemolog.domain.errors import ExtraMissing, UnknownSession
from mnemolog.projections.recall.answer import Hit
from mnemolog.results import NewTurn
from mnemolog.session import Session
from mnemolog.store import MemoryStore

try:
    from agent.memory_provider import MemoryProvider
    from hermes_constants import get_hermes_home
except ModuleNotFoundError as error:
    raise ExtraMissing("hermes", "hermes_constants") from error

PATIENCE_S: Final = WAIT_S
"""How long an answer waits for the model, before words alone answer. Hermes gives up after 8 seconds."""
RECALL: Final = f"{NAME}_recall"
_REASONS: Final = {"branch": "branch", "compression": "compress"}


class MnemologProvider(MemoryProvider):
    """A store as Hermes' memory. `model` stands in for the one that is configured (`MemoryStore.open`).

    Hooks may come from any thread, and before the store could be opened: that is tried again with each of them.
    """

    def __init__(self, *, model: Any = None) -> None:
        self._model, self._config = model, Config()
        self._home = Path(get_hermes_home())
        self._warn: Callable[[str], object] = lambda _: None
        self._outbox = Outbox(self._open, lambda what: self._warn(what))
        self._tools = conversation_tools(self._recall, self._remember, prefix=f"{NAME}_")
        self._active = False
        self._agent = self._scope = "hermes"
        self._session = self._left = ""
        self._since = 0
        """Up to here the log may be recalled; what was said behind it stands in the context of the model."""
        self._afresh = True
        """Whether nothing that was asked for in the background is this conversation's."""

    @property
    def name(self) -> str:
        """What `memory.provider` in Hermes' configuration says."""
        return NAME

    def is_available(self) -> bool:
        """Return True: what is needed is installed, or this could not have been imported."""
        return True

    def initialize(self, session_id: str, **kwargs: Any) -> None:
        """Open the store, and start or resume the session. What fails is raised, and tried again with every hook."""
        self._home = Path(kwargs.get("hermes_home") or self._home)
        self._warn = kwargs.get("warning_callback") or self._warn
        if "retain_every_n_turns" in kwargs:
            self._warn("retain_every_n_turns has no effect: every turn is recorded at once, with a vector of its own")
        # Quoted, so that two users or profiles never make one scope, whatever they are called.
        names = (quote(str(kwargs.get(key) or ""), safe="") for key in ("agent_identity", "platform", "user_id"))
        profile, platform, user = names
        self._agent = f"hermes/{profile or 'default'}"
        self._scope = f"{self._agent}/{f'{platform}:{user}' if user else 'owner'}"
        self._active = kwargs.get("agent_context", "primary") == "primary"
        self._enter(session_id)

    def _chosen(self) -> Config:
        return read_settings(config.file(self._home), Config)

    def _open(self) -> MemoryStore:
        self._config = chosen = self._chosen()
        (folder := chosen.store(self._home)).parent.mkdir(parents=True, exist_ok=True)
        return acquire(folder, model=self._model or (None if chosen.model.lower() == "none" else chosen.model))

    def _enter(self, session_id: str, *, left: str = "", reason: str = "new") -> None:
        self._session, self._left, self._afresh = session_id, left, True
        if self._active:
            how: dict[str, Any] = {"left": left or None, "agent": self._agent, "scope": self._scope, "reason": reason}
            self._outbox.put(lambda store: get_or_start_session(store, session_id, **how))
            self._since = self._outbox.ask(lambda store: store.head().position)

    def _started(self, store: MemoryStore, session_id: str) -> Session:
        """Return a session, started if Hermes has not told of it before."""
        try:
            return store.session(session_id)
        except UnknownSession:
            return store.start_session(session_id, agent=self._agent, scope=self._scope, session_id=session_id)

    # What Hermes tells.

    def on_turn_start(self, turn_number: int, message: str, **kwargs: Any) -> None:
        """Write what could not be written before. A first turn uses nothing that was asked for before it."""
        self._afresh = self._afresh or turn_number <= 1
        if self._active:
            self._outbox.flush()

    def sync_turn(
        self,
        user_content: str,
        assistant_content: str,
        *,
        session_id: str = "",
        messages: list[dict[str, Any]] | None = None,
    ) -> None:
        """Record a turn: both sides of it or none, durable when this returns."""
        said = {"user": user_content, "assistant": assistant_content}
        turns = [self._turn(session_id, role, text) for role, text in said.items() if text.strip()]
        if self._active and turns:
            self._say(*turns, messages=messages)

    def _turn(self, session: str, role: str, text: str, **about: Any) -> NewTurn:
        text = text.replace("\x00", "").encode(errors="replace").decode()
        return NewTurn(session=session or self._session, role=role, text=text, key=f"hermes/{uuid4()}", **about)

    def _say(self, *turns: NewTurn, messages: list[dict[str, Any]] | None = None) -> None:
        def write(store: MemoryStore) -> None:
            session = self._started(store, turns[0].session)
            if messages is not None and has_pending_undo(session):
                rewind_to_transcript(session, messages, before=turns[0].text)
            record_many_reopening(store, turns)

        self._outbox.put(write)

    def on_session_end(self, messages: list[dict[str, Any]]) -> None:
        """Write what waits. Nothing else: every turn is recorded already, and Hermes may go on with the session."""
        if self._active:
            self._outbox.flush()

    def on_session_switch(
        self,
        new_session_id: str,
        *,
        parent_session_id: str = "",
        reset: bool = False,
        rewound: bool = False,
        **kwargs: Any,
    ) -> None:
        """Go on in another session, or in the same one where it was compressed or turns were taken back."""
        if not rewound:
            reason = "reset" if reset else _REASONS.get(str(kwargs.get("reason")), "new")
            self._enter(new_session_id, left=parent_session_id or self._session, reason=reason)
        elif self._active:
            self._session, self._afresh = new_session_id, True
            self._outbox.put(lambda store: flag_pending_undo(self._started(store, new_session_id)))

    def on_pre_compress(self, messages: list[dict[str, Any]]) -> str:
        """Tell the one who summarises where all of it is kept."""
        if not self._active:
            return ""
        head = self._outbox.ask(lambda store: store.head().position)
        kept = f"All earlier turns are kept word for word (session {self._session}, up to position {head})"
        return f"{kept}; the tool {RECALL} finds what a summary leaves out."

    def on_memory_write(self, action: str, target: str, content: str, metadata: dict[str, Any] | None = None) -> None:
        """Record that Hermes' own memory was changed, and how."""
        about = {key: str(value) for key, value in (metadata or {}).items() if key in ("session_id", "old_text")}
        text = content or about.get("old_text", "")
        if self._active and text.strip():
            session, text = about.pop("session_id", ""), f"No longer holds: {text}" if action == "remove" else text
            self._say(self._turn(session, "system", text, metadata={"memory": target, "action": action, **about}))

    # What it asks.

    def _asks_in(self) -> str:
        return self._scope if self._config.recall == "user" else self._agent

    def prefetch(self, query: str, *, session_id: str = "") -> str:
        """Return what the message calls to mind, as text for the model. A model that is stuck holds nobody up."""
        if not self._active or not query.strip():
            return ""
        # What the model knows without being reminded: the session that was left a moment ago, too.
        known: dict[str, Any] = {"known_after": self._since, "without": (self._left,) if self._afresh else ()}
        hits = self._called_to_mind(query, session_id, fresh=self._afresh, **known)
        return "\n".join(["Said in earlier conversations:", *map(line_of, hits)]) if hits else ""

    def _called_to_mind(self, query: str, session_id: str = "", *, times: int = 1, **how: Any) -> list[Hit]:
        def question(store: MemoryStore) -> list[Hit]:  # How it is configured is known once the store is open.
            session, k = store.session(session_id or self._session), times * self._config.hits
            return context_for(session, query, k=k, scope=self._asks_in(), wait_s=PATIENCE_S, **how)

        return self._outbox.ask(question)

    def queue_prefetch(self, query: str, *, session_id: str = "") -> None:
        """Ask in the background what the turn calls to mind, for the next turn of the same session."""
        here = session_id or self._session
        if self._active and query.strip():

            def ask(store: MemoryStore) -> None:
                asked, k = query[:MESSAGE_CHARS_MAX], self._config.hits
                store.session(here).prefetch(asked, k=k, scope=self._asks_in())

            self._outbox.ask(ask)
            self._afresh = self._afresh and here != self._session

    def system_prompt_block(self) -> str:
        """Tell the model what it has, without a word that changes."""
        return f"# Memory (mnemolog)\nEvery turn of every conversation is kept word for word; {RECALL} finds it."

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """Return the tools, as OpenAI describes functions."""
        return [tool.function() for tool in self._tools.values()]

    def handle_tool_call(self, tool_name: str, args: dict[str, Any], **kwargs: Any) -> str:
        """Answer a tool with JSON; with `error` and `hint` where it failed."""
        return self._tools[tool_name].answer(args)

    def _recall(self, query: str) -> list[Hit]:
        return self._called_to_mind(query, times=2, fresh=True)

    def _remember(self, text: str) -> str:
        turn = self._turn("", "assistant", text, metadata={"remembered": True})
        self._say(turn)
        return turn.text

    # What is arranged.

    def get_config_schema(self) -> list[dict[str, Any]]:
        """Return what `hermes memory setup` asks for."""
        return config.schema()

    def save_config(self, values: dict[str, Any], hermes_home: str) -> None:
        """Save what was chosen. Raises `InvalidInput`: what was chosen before stands."""
        change_settings(config.file(Path(hermes_home)), Config, values)

    def backup_paths(self) -> list[str]:
        """Return what `hermes backup` does not find by itself: of a store outside of Hermes' home a copy made now."""
        folder, home = self._chosen().store(self._home).absolute(), self._home.absolute()
        return [] if folder.is_relative_to(home) else [str(path) for path in backup_beside(folder, "for-hermes")]

    def shutdown(self) -> None:
        """Write what waits and let go of the store."""
        self._outbox.close()
