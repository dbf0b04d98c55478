"""The memory provider for Hermes: records turns and answers recalls.

Turns are in the log when a hook returns, in the session that Hermes names.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote
from uuid import uuid4

from mnemolog.adapters.hermes import config
from mnemolog.adapters.hermes.backup import backup_beside
from mnemolog.adapters.support.agent_tools import conversation_tools
from mnemolog.adapters.support.context import MESSAGE_CHARS_MAX, WAIT_S, context_for, line_of
from mnemolog.adapters.support.framework_sessions import (
    flag_pending_undo,
    get_or_start_session,
    has_pending_undo,
    record_many_reopening,
    rewind_to_transcript,
)
from mnemolog.adapters.support.outbox import Outbox, acquire
from mnemolog.adapters.support.store_access import begin_session, known_session
from mnemolog.domain.errors import ExtraMissing
from mnemolog.domain.session import session_id_of
from mnemolog.infra.runtime.files import make_folder
from mnemolog.projections.recall.answer import Hit
from mnemolog.results import NewTurn
from mnemolog.store import MemoryStore

try:
    from agent.memory_provider import MemoryProvider
    from hermes_constants import get_hermes_home
except ModuleNotFoundError as error:
    raise ExtraMissing("hermes", "hermes_constants") from error

PATIENCE_S: Final = WAIT_S
"""How long recall waits for the model before text search answers alone. Hermes gives up after 8 seconds."""
RECALL: Final = f"{config.NAME}_recall"
_REASONS: Final = {"branch": "branch", "compression": "compress"}


class MnemologProvider(MemoryProvider):
    """A store as Hermes' memory. `model` replaces the configured one (`MemoryStore.open`).

    Hooks may be called from any thread, also before the store could be opened: each hook tries to open it again.
    """

    def __init__(self, *, model: Any = None) -> None:
        self._model, self._config = model, config.Config()
        self._home = Path(get_hermes_home())
        self._warn: Callable[[str], object] = lambda _: None
        self._outbox = Outbox(self._open, lambda what: self._warn(what))
        self._tools = conversation_tools(self._recall, self._remember, prefix=f"{config.NAME}_")
        self._active = False
        self._agent = self._scope = "hermes"
        self._session = self._left = ""
        self._since = 0
        """Recall returns turns up to this position; later turns are in the context of the model."""
        self._is_fresh = True
        """Whether no prefetch of this conversation has been requested yet."""

    @property
    def name(self) -> str:
        """The value of `memory.provider` in Hermes' configuration."""
        return config.NAME

    def is_available(self) -> bool:
        """Return True: without its dependencies this module could not have been imported."""
        return True

    def initialize(self, session_id: str, **kwargs: Any) -> None:
        """Open the store, and start or resume the session. Raises on failure; every hook tries again."""
        self._home = Path(kwargs.get("hermes_home") or self._home)
        self._warn = kwargs.get("warning_callback") or self._warn
        # Quoted, so that two users or profiles never share a scope.
        names = (quote(str(kwargs.get(key) or ""), safe="") for key in ("agent_identity", "platform", "user_id"))
        profile, platform, user = names
        self._agent = f"hermes/{profile or 'default'}"
        self._scope = f"{self._agent}/{f'{platform}:{user}' if user else 'owner'}"
        self._active = kwargs.get("agent_context", "primary") == "primary"
        self._enter(session_id)

    def _read_config(self) -> config.Config:
        return config.read(config.file(self._home))

    def _open(self) -> MemoryStore:
        self._config = chosen = self._read_config()
        make_folder((folder := chosen.store(self._home)).parent)
        return acquire(folder, model=self._model or (None if chosen.model.lower() == "none" else chosen.model))

    def _enter(self, session_id: str, *, left: str = "", reason: str = "new") -> None:
        self._session = session_id
        self._left = left
        self._is_fresh = True
        if self._active:
            how: dict[str, Any] = {"left": left or None, "agent": self._agent, "scope": self._scope, "reason": reason}
            self._outbox.put(lambda store: get_or_start_session(store, session_id, **how))
            self._since = self._outbox.ask(lambda store: store.head().position)

    # Hooks that write.

    def on_turn_start(self, turn_number: int, message: str, **kwargs: Any) -> None:
        """Write what could not be written before. A first turn uses no earlier prefetch."""
        self._is_fresh = self._is_fresh or turn_number <= 1
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
            session = begin_session(  # Hermes may not have announced it.
                store, session_id_of(turns[0].session), agent=self._agent, scope=self._scope
            )
            if messages is not None and has_pending_undo(session):
                rewind_to_transcript(session, messages, before=turns[0].text)
            record_many_reopening(store, turns)

        self._outbox.put(write)

    def on_session_end(self, messages: list[dict[str, Any]]) -> None:
        """Write what waits. The session is not ended: every turn is recorded, and Hermes may continue it."""
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
        """Switch to another session, or continue the same one after a compression or an undo."""
        if not rewound:
            reason = "reset" if reset else _REASONS.get(str(kwargs.get("reason")), "new")
            self._enter(new_session_id, left=parent_session_id or self._session, reason=reason)
        elif self._active:
            self._session, self._is_fresh = new_session_id, True
            self._outbox.put(
                lambda store: flag_pending_undo(
                    begin_session(store, new_session_id, agent=self._agent, scope=self._scope)
                )
            )

    def on_pre_compress(self, messages: list[dict[str, Any]]) -> str:
        """Return a note for the summarizing model: where all turns are kept."""
        if not self._active:
            return ""
        head = self._outbox.ask(lambda store: store.head().position)
        kept = f"All earlier turns are kept word for word (session {self._session}, up to position {head})"
        return f"{kept}; the tool {RECALL} finds what a summary leaves out."

    def on_memory_write(self, action: str, target: str, content: str, metadata: dict[str, Any] | None = None) -> None:
        """Record a change of Hermes' own memory."""
        about = {key: str(value) for key, value in (metadata or {}).items() if key in ("session_id", "old_text")}
        text = content or about.get("old_text", "")
        if self._active and text.strip():
            session, text = about.pop("session_id", ""), f"No longer holds: {text}" if action == "remove" else text
            self._say(self._turn(session, "system", text, metadata={"memory": target, "action": action, **about}))

    # Hooks that read.

    def _recall_scope(self) -> str:
        return self._scope if self._config.recall == "user" else self._agent

    def prefetch(self, query: str, *, session_id: str = "") -> str:
        """Return the turns that are relevant for the message, as text. Waits for the model at most `PATIENCE_S`."""
        if not self._active or not query.strip():
            return ""
        # Excluded because the model has it in context; after a switch, also the session that was left.
        known: dict[str, Any] = {"known_after": self._since, "without": (self._left,) if self._is_fresh else ()}
        hits = self._recalled(query, session_id, fresh=self._is_fresh, **known)
        return "\n".join(["Said in earlier conversations:", *map(line_of, hits)]) if hits else ""

    def _recalled(self, query: str, session_id: str = "", *, times: int = 1, **how: Any) -> list[Hit]:
        def question(store: MemoryStore) -> list[Hit]:  # The configuration is known once the store is open.
            session, k = known_session(store, session_id or self._session), times * self._config.hits
            return context_for(session, query, k=k, scope=self._recall_scope(), wait_s=PATIENCE_S, **how)

        return self._outbox.ask(question)

    def queue_prefetch(self, query: str, *, session_id: str = "") -> None:
        """Start a recall in the background, for the next turn of the same session."""
        here = session_id or self._session
        if self._active and query.strip():

            def ask(store: MemoryStore) -> None:
                asked, k = query[:MESSAGE_CHARS_MAX], self._config.hits
                known_session(store, here).prefetch(asked, k=k, scope=self._recall_scope())

            self._outbox.ask(ask)
            self._is_fresh = self._is_fresh and here != self._session

    def system_prompt_block(self) -> str:
        """Return a constant text that describes the memory to the model."""
        return f"# Memory (mnemolog)\nEvery turn of every conversation is kept word for word; {RECALL} finds it."

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """Return the tools in OpenAI's function format."""
        return [tool.function() for tool in self._tools.values()]

    def handle_tool_call(self, tool_name: str, args: dict[str, Any], **kwargs: Any) -> str:
        """Call a tool and return JSON, with `error` and `hint` if it failed."""
        return self._tools[tool_name].answer(args)

    def _recall(self, query: str) -> list[Hit]:
        return self._recalled(query, times=2, fresh=True)

    def _remember(self, text: str) -> str:
        turn = self._turn("", "assistant", text, metadata={"remembered": True})
        self._say(turn)
        return turn.text

    # Configuration.

    def get_config_schema(self) -> list[dict[str, Any]]:
        """Return the options of `hermes memory setup`."""
        return config.schema()

    def save_config(self, values: dict[str, Any], hermes_home: str) -> None:
        """Save options. Raises `InvalidInput`: nothing was changed."""
        config.change(config.file(Path(hermes_home)), values)

    def backup_paths(self) -> list[str]:
        """Return extra paths for `hermes backup`: of a store outside of Hermes' home, a fresh copy."""
        folder, home = self._read_config().store(self._home).absolute(), self._home.absolute()
        return [] if folder.is_relative_to(home) else [str(path) for path in backup_beside(folder, "for-hermes")]

    def shutdown(self) -> None:
        """Write what waits and release the store."""
        self._outbox.close()
