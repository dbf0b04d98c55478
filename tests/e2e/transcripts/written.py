"""Transcripts as the agents write them, made up line by line."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

TIMES = count(1_760_000_000)
"""Seconds of Unix time: no two lines are of one moment."""


def now() -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(next(TIMES), UTC).isoformat().replace("+00:00", ".000Z")


class Transcript:
    """A file that grows by whole lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)

    def put(self, *rows: dict[str, Any] | str) -> None:
        lines = "".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows)
        with self.path.open("a") as file:
            file.write(lines)


class Claude(Transcript):
    """A session of Claude Code. `say` and `answer` continue the last line, or the one in `after`."""

    cwd = "/home/ada/kettle"

    def __init__(self, folder: Path, session: str, *, file: str | None = None) -> None:
        super().__init__(folder / "-home-ada-kettle" / f"{file or session}.jsonl")
        self.session, self.last = session, None
        self.rows: list[dict[str, Any]] = []
        self._numbers = count(1)

    def line(self, kind: str, *, after: str | None = "", **fields: Any) -> str:
        """Write a line; return its uuid."""
        uuid = fields.pop("uuid", None) or f"{self.session[:6]}-{next(self._numbers):04}"
        parent = self.last if after == "" else after
        row = {
            "parentUuid": parent,
            "isSidechain": False,
            "cwd": self.cwd,
            "sessionId": self.session,
            "version": "2.1.0",
        }
        row |= {"type": kind, "uuid": uuid, "timestamp": now()} | fields
        self.rows.append(row)
        self.put(row)
        self.last = uuid
        return uuid

    def say(self, text: str, **fields: Any) -> str:
        return self.line("user", message={"role": "user", "content": text}, **fields)

    def answer(self, text: str, **fields: Any) -> str:
        content = [{"type": "text", "text": text}]
        return self.line("assistant", message={"role": "assistant", "model": "a-model", "content": content}, **fields)

    def call(self, name: str, number: str, **fields: Any) -> str:
        content = [{"type": "tool_use", "id": number, "name": name, "input": {"command": "make"}}]
        return self.line("assistant", message={"role": "assistant", "content": content}, **fields)

    def result(self, text: str, number: str, **fields: Any) -> str:
        content = [{"type": "tool_result", "tool_use_id": number, "content": text}]
        return self.line("user", message={"role": "user", "content": content}, **fields)

    def hook(self, **fields: Any) -> str:
        return self.line("attachment", attachment={"type": "hook_success"}, **fields)

    def compact(self, summary: str = "What was said so far.") -> str:
        logical = self.last
        self.line(
            "system",
            after=None,
            subtype="compact_boundary",
            logicalParentUuid=logical,
            content="Conversation compacted",
        )
        return self.line("user", message={"role": "user", "content": summary}, isCompactSummary=True)

    def fork(self, folder: Path, session: str, *, upto: str, marked: bool = True, says: str) -> Claude:
        """Return another session: it begins with copies of the lines up to one of this, and goes on with a question."""
        other = Claude(folder, session)
        for row in self.rows:
            origin = {"forkedFrom": {"sessionId": self.session, "messageUuid": row["uuid"]}} if marked else {}
            other.rows.append(row | {"sessionId": session} | origin)
            other.put(other.rows[-1])
            if row["uuid"] == upto:
                break
        other.last = upto
        other.say(says)
        return other


class Codex(Transcript):
    """A rollout of Codex."""

    def __init__(self, folder: Path, session: str, *, meta: bool = True, **fields: Any) -> None:
        stamp = now()
        name = f"rollout-{stamp[:19].replace(':', '-')}-{session}.jsonl"
        super().__init__(folder / stamp[:4] / stamp[5:7] / stamp[8:10] / name)
        self.session = session
        self.rows: list[dict[str, Any]] = []
        if meta:
            known = {"id": session, "timestamp": stamp, "cwd": "/home/ada/kettle", "originator": "codex_cli_rs"}
            known |= {"cli_version": "0.98.0", "source": "cli", "git": {"branch": "main"}}
            self.line("session_meta", **known | fields)

    def line(self, kind: str, **payload: Any) -> None:
        self.rows.append({"timestamp": now(), "type": kind, "payload": payload})
        self.put(self.rows[-1])

    def say(self, text: str) -> None:
        self.line("response_item", type="message", role="user", content=[{"type": "input_text", "text": text}])
        self.line("event_msg", type="user_message", message=text)

    def answer(self, text: str) -> None:
        self.line("event_msg", type="agent_message", message=text)
        content = [{"type": "output_text", "text": text}]
        self.line("response_item", type="message", role="assistant", content=content)
        self.line("event_msg", type="token_count", info=None)

    def context(self, text: str) -> None:
        self.say_only(f"<environment_context>\n{text}\n</environment_context>")

    def say_only(self, text: str, role: str = "user") -> None:
        self.line("response_item", type="message", role=role, content=[{"type": "input_text", "text": text}])

    def call(self, name: str, number: str) -> None:
        self.line("response_item", type="function_call", name=name, arguments='{"cmd":["ls"]}', call_id=number)

    def result(self, text: str, number: str) -> None:
        self.line("response_item", type="function_call_output", call_id=number, output=text)

    def compact(self) -> None:
        self.line("compacted", message="What was said so far.", replacement_history=[])
        self.line("event_msg", type="context_compacted")

    def undo(self, turns: int) -> None:
        self.line("event_msg", type="thread_rolled_back", num_turns=turns)

    def fork(
        self, folder: Path, session: str, *, lines: int | None = None, says: str | None = None, **fields: Any
    ) -> Codex:
        """Return another session whose file begins with the lines of this, stamped anew, and maybe with a question."""
        other = Codex(folder, session, forked_from_id=self.session, **fields)
        for row in self.rows[:lines]:
            other.rows.append(row | {"timestamp": now()})
            other.put(other.rows[-1])
        if says is not None:
            other.say(says)
        return other
