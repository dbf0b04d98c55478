"""Rollouts of Codex: JSON Lines, each `{"timestamp", "type", "payload"}`.

Messages are in `response_item` lines. Most `event_msg` lines repeat them and are skipped. Until August 2025, lines were
payloads without type and time: the first began the session, and each of the others was an item of it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from mnemolog.adapters.importers.turn import (
    Compacted,
    Entry,
    Format,
    TurnMaker,
    Undone,
    is_recalling,
    name_of,
    stem_of,
    text_or_none,
    typed_content,
    value_at,
    why_left_out,
)
from mnemolog.domain.message import content_text
from mnemolog.domain.values import checked_whole

_CALLS: Final = {
    "function_call": ("name", "namespace", "arguments"),
    "custom_tool_call": ("name", "input"),
    "local_shell_call": ("action",),
    "web_search_call": ("action",),
    "tool_search_call": ("arguments",),
}
"""Kinds of tool calls, and the fields that are kept of them."""
_RESULTS: Final = ("function_call_output", "custom_tool_call_output", "tool_search_output")
_FILE_NAME: Final = re.compile(r"rollout-[\dT-]+?-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$")

# Messages of the program to its model that have the role of the user.
_NOT_SAID: Final = re.compile(
    r"\s*(?:# AGENTS\.md instructions\b|The following is the Codex agent history\b|</image>\s*$"
    r"|<(?:environment_context|user_instructions|permissions instructions|turn_aborted|skill|subagent_notification"
    r"|hook_prompt|recommended_plugins|goal_context|codex_internal_context|INSTRUCTIONS|user_action|model_switch"
    r"|collaboration_mode|skills_instructions|apps_instructions|plugins_instructions|personality_spec|image name)\b)"
)
_IN_EDITOR: Final = re.compile(r"\s*# (?:Context from my IDE setup|Files mentioned by the user):")
_REQUEST: Final = "## My request for Codex:"
"""Before it an editor lists its open files; after it is what the user typed."""
_SHELL: Final = re.compile(r"\s*<user_shell_command>\s*<command>(.*?)</command>", re.DOTALL)
"""A command that the user ran: what follows is its output."""


def is_rollout_line(row: dict[str, Any]) -> bool:
    """Whether a line can only come from a rollout."""
    is_item = row.get("type") in ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
    return (is_item and isinstance(row.get("payload"), dict) and "timestamp" in row) or _is_early_beginning(row)


def _is_early_beginning(row: dict[str, Any]) -> bool:
    return "type" not in row and row.keys() >= {"id", "timestamp", "instructions"}


def session_of(path: Path) -> str:
    """Return the session that the name of a rollout tells, or else the name."""
    stem = stem_of(path).removesuffix(".jsonl")
    named = _FILE_NAME.fullmatch(stem)
    return named[1] if named else stem


class CodexReader:
    """Reads a rollout: a sequence of lines, some of which the user may have undone.

    The first `session_meta` names its session; later ones were copied with the history of another session.
    """

    def __init__(self, maker: TurnMaker) -> None:
        self._maker = maker
        self.state: dict[str, Any] = {"session": session_of(maker.path), "asked": []}

    def entry(self, line: int, row: dict[str, Any]) -> Entry | None:
        """Return the entry of a line, None if it has none. Raises `InvalidInput`."""
        if _is_early_beginning(row):
            self.state["began"] = row["timestamp"]
            row = {"type": "session_meta", "payload": row}
        elif "payload" not in row:
            row = {
                "type": "response_item",
                "payload": row,
                "timestamp": row.get("timestamp") or self.state.get("began"),
            }
        payload = row["payload"]
        if not isinstance(payload, dict):
            return None
        match row.get("type"):
            case "session_meta" if "meta" not in self.state:
                self._begin(payload)
            case "turn_context":
                self.state["model"] = text_or_none("model", payload.get("model"))
            case "response_item":
                return self._said(line, row, payload)
            case "compacted":
                return self._entry(move=Compacted(self._key_of("compacted")))
            case "event_msg" if payload.get("type") == "thread_rolled_back":
                return self._rolled_back(payload.get("num_turns"))
        return None

    def _begin(self, payload: dict[str, Any]) -> None:
        meta = {
            "cwd": payload.get("cwd"),
            "gitBranch": value_at(payload, ("git", "branch")),
            "version": payload.get("cli_version"),
        }
        self.state["meta"] = {name: value for name, value in meta.items() if isinstance(value, str) and value}
        self.state["session"] = text_or_none("id", payload.get("id")) or self.state["session"]
        spawned_by = value_at(payload, ("source", "subagent", "thread_spawn", "parent_thread_id"))
        for name, value in (("forked_from", payload.get("forked_from_id")), ("works_for", spawned_by)):
            if isinstance(value, str) and value:
                self.state[name] = value

    def _said(self, line: int, row: dict[str, Any], item: dict[str, Any]) -> Entry | None:
        role, text, calls, about = _turn_of(item)
        recalling: list[object] = self.state.setdefault("recalling", [])
        if calls and is_recalling(f"{item.get('namespace', '')}__{item.get('name')}"):
            recalling.append(item.get("call_id"))
        if (not calls and (not text or text.isspace())) or about.get("tool_call_id") in recalling:
            said = item.get("role") in ("user", "assistant")
            known = item.get("type") in ("message", "reasoning", *_RESULTS)
            self._maker.left_out.update(why_left_out(item.get("content"), (), said=said) if known else ())
            return None
        session, meta = self.state["session"], self.state.get("meta", {})
        turn = self._maker.turn(
            line,
            session=session,
            session_title=name_of(session, meta.get("cwd", "")),
            role=role,
            text=text,
            time=row.get("timestamp"),
            tool_calls=calls,
            metadata=meta | ({"model": self.state["model"]} if self.state.get("model") else {}) | about,
        )
        parts = [str(part.get("text")) for part in item.get("content") or () if isinstance(part, dict)]
        asks = role == "user" and not any(map(_SHELL.match, parts))
        if asks:
            self.state["asked"].append(turn.key)
        self._maker.left_out.update(why_left_out(item.get("content"), [turn]))
        return self._entry(turns=[turn], asks=asks)

    def _rolled_back(self, count: Any) -> Entry | None:
        checked_whole("num_turns", count, least=1)
        asked = self.state["asked"]
        undone = asked[-count:]
        del asked[-count:]
        return self._entry(move=Undone(self._key_of(f"undone {count}"), undone[0])) if undone else None

    def _key_of(self, what: str) -> str:
        return self._maker.keys.key(self.state["session"], what)

    def _entry(self, **fields: Any) -> Entry:
        return Entry(
            session=self.state["session"],
            works_for=self.state.get("works_for"),
            copied_from=self.state.get("forked_from"),
            recounted=True,
            folder=self.state.get("meta", {}).get("cwd", ""),
            **fields,
        )


def _turn_of(item: dict[str, Any]) -> tuple[str, str, list[Any], dict[str, Any]]:
    """Return role, text, tool calls and metadata. The text is empty if the item is not a message or a call."""
    kind = item.get("type")
    if kind == "message":
        role = item.get("role")
        if role not in ("user", "assistant"):
            return "", "", [], {}
        content = item.get("content")
        return role, content_text(typed_content(content, _typed_text) if role == "user" else content), [], {}
    if isinstance(kind, str) and kind in _CALLS:
        call = {"name": kind.removesuffix("_call")}
        call |= {name: item[name] for name in _CALLS[kind] if item.get(name) is not None}
        return "assistant", "", [{"id": item.get("call_id"), **call}], {}
    if kind in _RESULTS:
        output = item.get("output")  # A text, blocks, or an object with either.
        text = content_text(output.get("content") if isinstance(output, dict) else output)
        return "tool", text, [], {"tool_call_id": item.get("call_id")}
    return "", "", [], {}


def _typed_text(text: str) -> str:
    """Return what the user typed of a text."""
    if _NOT_SAID.match(text):
        return ""
    if shell := _SHELL.match(text):
        return shell[1].strip()
    _, request, typed = text.partition(_REQUEST)
    return typed.strip() if request and _IN_EDITOR.match(text) else text


FORMAT: Final = Format(
    name="codex",
    kind="a rollout of Codex",
    recognizes=lambda value: isinstance(value, dict) and is_rollout_line(value),
    links=("timestamp",),
    transcript=CodexReader,
)
