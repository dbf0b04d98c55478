"""Session transcripts of Claude Code: JSON Lines with one event a line."""

from __future__ import annotations

from typing import Any, Final

from mnemolog.adapters.importers.entry import Compacted, Entry, name_of
from mnemolog.adapters.importers.format import Format
from mnemolog.adapters.importers.turn import ImportedTurn, SaidTurn, TurnMaker, stem_of, text_or_none
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.message_content import calls_in, content_text, results_in
from mnemolog.domain.role import Role

TYPES_READ: Final = ("user", "assistant")
_IDS: Final = {"sessionId", "uuid"}
_SIDE_FIELDS: Final = {"leafUuid", "parentUuid", "isSnapshotUpdate"}
_SIDE_TYPES: Final = ("queue-operation", "permission-mode")
# Written by the program, not by user or model: hints to the model, summaries, errors.
_NOT_SAID: Final = ("isMeta", "isCompactSummary", "isApiErrorMessage")
_KEPT: Final = ("cwd", "gitBranch", "version")


def is_transcript_line(row: dict[str, Any]) -> bool:
    """Whether a line is a message of such a transcript."""
    return row.get("type") in TYPES_READ and isinstance(row.get("message"), dict) and bool(row.keys() & _IDS)


def is_side_line(row: dict[str, Any]) -> bool:
    """Whether a line looks like bookkeeping of such a transcript."""
    return isinstance(row.get("type"), str) and (row["type"] in _SIDE_TYPES or bool(row.keys() & _SIDE_FIELDS))


class ClaudeCodeReader:
    """Reads a transcript: a tree of lines, each of which names its parent."""

    def __init__(self, maker: TurnMaker) -> None:
        self._maker, self._stem = maker, stem_of(maker.path)
        self._names: dict[str, str] = {}
        self.state: dict[str, Any] = {}

    def entry(self, line: int, row: dict[str, Any]) -> Entry | None:
        """Return the entry of a line, without turns if it is not a message. Raises `InvalidInput`."""
        uuid = text_or_none("uuid", row.get("uuid"))
        own = text_or_none("sessionId", row.get("sessionId")) or self._stem
        session = _side_session(own, row) if row.get("isSidechain") else own
        turns = self._turns(line, row, session, uuid)
        compacted = row.get("type") == "system" and row.get("subtype") == "compact_boundary"
        if not turns and uuid is None:
            return None
        return Entry(
            session=session,
            turns=turns,
            move=Compacted(uuid) if compacted and uuid else None,
            name=uuid,
            follows=_name_in(row, "parentUuid") or _name_in(row, "logicalParentUuid"),
            asks=any(turn.role == "user" for turn in turns),
            works_for=own if session != own else None,
            copied_from=_origin(row),
            folder=str(row.get("cwd") or ""),
        )

    def _turns(self, line: int, row: dict[str, Any], session: str, uuid: str | None) -> list[ImportedTurn]:
        if row.get("type") not in TYPES_READ or any(row.get(flag) for flag in _NOT_SAID):
            return []
        message = row.get("message")
        if not isinstance(message, dict):
            raise InvalidInput("message", f"expected an object, got {type(message).__name__}")
        name = self._names.setdefault(session, name_of(session, str(row.get("cwd") or "")))
        turns: list[ImportedTurn] = []
        for role, text, calls, about in _said(row["type"], message):
            turn = SaidTurn(
                session=session,
                session_title=name,
                role=role,
                text=text,
                key=f"{uuid}/{len(turns) + 1}" if uuid and turns else uuid,
                time=row.get("timestamp"),
                tool_calls=calls,
                metadata=_metadata(row, message) | about,
            )
            turns.append(self._maker.turn(turn, line))
        return turns


def _side_session(session: str, row: dict[str, Any]) -> str:
    """Return the session of a subagent: its own, named after the session of its user."""
    return f"{session}/{text_or_none('agentId', row.get('agentId')) or 'sidechain'}"


def _name_in(row: dict[str, Any], field: str) -> str | None:
    value = row.get(field)
    return value if isinstance(value, str) and value else None


def _origin(row: dict[str, Any]) -> str | None:
    """Return the session that the line was copied from, None if it was not."""
    origin = row.get("forkedFrom")
    return _name_in(origin, "sessionId") if isinstance(origin, dict) else None


def _said(kind: str, message: dict[str, Any]) -> list[tuple[object, str, list[Any], dict[str, Any]]]:
    """Return role, text, tool calls and metadata of every turn in a message, results of tools first."""
    content = message.get("content")
    said: list[tuple[object, str, list[Any], dict[str, Any]]] = [
        (Role.TOOL.value, text, [], about) for text, about in results_in(content)
    ]
    said.append((message.get("role") or kind, content_text(content), calls_in(content), {}))
    return [turn for turn in said if turn[2] or (turn[1] and not turn[1].isspace())]


def _metadata(row: dict[str, Any], message: dict[str, Any]) -> dict[str, Any]:
    metadata = {name: row[name] for name in _KEPT if row.get(name)}
    if message.get("model"):
        metadata["model"] = message["model"]
    return metadata


FORMAT: Final = Format(
    name="claude-code",
    kind="a session transcript of Claude Code",
    recognizes=lambda value: isinstance(value, dict) and is_transcript_line(value),
    transcript=ClaudeCodeReader,
)
