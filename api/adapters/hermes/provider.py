"""Hermes' memory provider: what it is told is in the log when it returns, under the session that Hermes names."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

from agent.memory_provider import MemoryProvider
from hermes_constants import get_hermes_home

from mnemolog.adapters.hermes import config, stores
from mnemolog.adapters.hermes.backups import copies
from mnemolog.adapters.hermes.config import NAME, SCHEMA, Config
from mnemolog.adapters.hermes.outbox import Outbox
from mnemolog.adapters.hermes.recalling import QUERY_CHARS, new_to, recalled, shown
from mnemolog.adapters.hermes.told import Entered, Said, Undone, Who
from mnemolog.adapters.hermes.tools import RECALL, REMEMBER, TOOLS
from mnemolog.domain.errors import MnemologError
from mnemolog.projections.recall import Hit
from mnemolog.results import NewTurn
from mnemolog.store import MemoryStore


class MnemologProvider(MemoryProvider):
    """A store as Hermes' memory. `model` stands in for the one that is configured (`MemoryStore.open`).

    Hooks may come from any thread, and before the store could be opened: that is tried again with each of them.
    """

    def __init__(self, *, model: Any = None) -> None:
        self._model = model
        self._home = Path(get_hermes_home())
        self._outbox = Outbox(self._open, self._report)
        self._active = False
        self._who = Who()
        self._config = Config()
        self._session = self._left = ""
        self._since = 0
        """Up to here the log may be recalled; what was said behind it stands in the context of the model."""
        self._afresh = True
        """Whether nothing that was asked for in the background is this conversation's."""
        self._warn: Callable[[str], None] | None = None
        self._warned = ""

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
        self._warn = kwargs.get("warning_callback")
        # Quoted, so that two users or profiles never make one scope, whatever they are called.
        profile, platform, user = (
            quote(str(kwargs.get(key) or ""), safe="") for key in ("agent_identity", "platform", "user_id")
        )
        agent = f"hermes/{profile or 'default'}"
        self._who = Who(agent=agent, scope=f"{agent}/{f'{platform}:{user}' if user else 'owner'}")
        self._active = kwargs.get("agent_context", "primary") == "primary"
        self._enter(session_id)

    def _enter(self, session_id: str, *, left: str = "", reason: str = "") -> None:
        self._session, self._left, self._afresh = session_id, left, True
        if self._active:
            self._outbox.put(Entered(session=session_id, who=self._who, left=left, reason=reason))
            self._since = self._outbox.ask(lambda store: store.head().position)

    def _open(self) -> MemoryStore:
        self._config = config.read(self._home)
        return stores.take(self._config.store(self._home), self._model or self._config.encoder)

    @property
    def _recalls(self) -> str:
        return self._who.scope if self._config.recall == "user" else self._who.agent

    def _report(self, what: str) -> None:
        if self._warn is not None and what != self._warned:
            self._warned = what
            self._warn(what)

    # What Hermes tells.

    def on_turn_start(self, turn_number: int, message: str, **kwargs: Any) -> None:
        """Write what could not be written before. A first turn uses nothing that was asked for before it."""
        self._afresh = self._afresh or turn_number <= 1
        if self._active:
            self._outbox.write()

    def sync_turn(
        self,
        user_content: str,
        assistant_content: str,
        *,
        session_id: str = "",
        messages: list[dict[str, Any]] | None = None,
    ) -> None:
        """Record a turn: both sides of it or none, durable when this returns."""
        if self._active:
            said = {"user": user_content, "assistant": assistant_content}
            turns = [self._turn(session_id, role, text) for role, text in said.items() if text.strip()]
            self._say(*turns, messages=messages)

    def _turn(self, session: str, role: str, text: str, **about: Any) -> NewTurn:
        text = text.replace("\x00", "").encode(errors="replace").decode()
        return NewTurn(session=session or self._session, role=role, text=text, key=f"hermes/{uuid4()}", **about)

    def _say(self, *turns: NewTurn, messages: list[dict[str, Any]] | None = None) -> None:
        if turns:
            self._outbox.put(Said(session=turns[0].session, who=self._who, turns=turns, messages=messages))

    def on_session_end(self, messages: list[dict[str, Any]]) -> None:
        """Write what waits. Nothing else: every turn is recorded already, and Hermes may go on with the session."""
        if self._active:
            self._outbox.write()

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
            reason = "reset" if reset else str(kwargs.get("reason") or "")
            self._enter(new_session_id, left=parent_session_id or self._session, reason=reason)
        elif self._active:
            self._session, self._afresh = new_session_id, True
            self._outbox.put(Undone(session=new_session_id, who=self._who))

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

    def prefetch(self, query: str, *, session_id: str = "") -> str:
        """Return what the message calls to mind, as text for the model. A model that is stuck holds nobody up."""
        if not self._active or not query.strip():
            return ""
        left = self._left if self._afresh else ""

        def question(store: MemoryStore) -> list[Hit]:
            session, k = store.session(session_id or self._session), self._config.hits
            hits = recalled(store, session, query, k=2 * k, scope=self._recalls, afresh=self._afresh)
            return list(new_to(session, hits, since=self._since, left=left))[:k]

        hits = self._outbox.ask(question)
        return "\n".join(["Said in earlier conversations:", *map(shown, hits)]) if hits else ""

    def queue_prefetch(self, query: str, *, session_id: str = "") -> None:
        """Ask in the background what the turn calls to mind, for the next turn of the same session."""
        here = session_id or self._session
        if self._active and query.strip():
            asked, k, scope = query[:QUERY_CHARS], self._config.hits, self._recalls
            self._outbox.ask(lambda store: store.session(here).prefetch(asked, k=k, scope=scope))
            self._afresh = self._afresh and here != self._session

    def system_prompt_block(self) -> str:
        """Tell the model what it has, without a word that changes."""
        return f"# Memory (mnemolog)\nEvery turn of every conversation is kept word for word; {RECALL} finds it."

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """Return the tools, as OpenAI describes functions."""
        return [dict(tool) for tool in TOOLS]

    def handle_tool_call(self, tool_name: str, args: dict[str, Any], **kwargs: Any) -> str:
        """Answer a tool with JSON; with `error` and `hint` where it failed."""
        try:
            answer = self._tool(tool_name, args)
        except MnemologError as error:
            answer = {"error": str(error), "hint": error.hint}
        return json.dumps(answer, ensure_ascii=False)

    def _tool(self, name: str, args: dict[str, Any]) -> dict[str, Any]:
        if name == REMEMBER:
            turn = self._turn("", "assistant", str(args.get("text", "")), metadata={"remembered": True})
            self._say(turn)
            return {"kept": turn.text}

        def question(store: MemoryStore) -> list[Hit]:
            session = store.session(self._session)
            query, k = str(args.get("query", "")), 2 * self._config.hits
            return recalled(store, session, query, k=k, scope=self._recalls, afresh=True)

        return {"found": [_told(hit) for hit in self._outbox.ask(question)]}

    # What is arranged.

    def get_config_schema(self) -> list[dict[str, Any]]:
        """Return what `hermes memory setup` asks for."""
        return [dict(field) for field in SCHEMA]

    def save_config(self, values: dict[str, Any], hermes_home: str) -> None:
        """Save what was chosen. Raises `InvalidInput`: what was chosen before stands."""
        config.save(values, Path(hermes_home))

    def backup_paths(self) -> list[str]:
        """Return what `hermes backup` does not find by itself: nothing, unless the store is outside of Hermes' home."""
        home = self._home
        return copies(config.read(home).store(home), home)

    def shutdown(self) -> None:
        """Write what waits and let go of the store."""
        self._outbox.close()


def _told(hit: Hit) -> dict[str, Any]:
    return {
        "text": hit.text,
        "role": hit.role,
        "said_at": hit.said_at.isoformat(),
        "session": hit.session,
        "position": hit.position,
    }
