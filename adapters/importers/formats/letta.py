"""Agent files of Letta (`.af`): a JSON document with agents and the messages that each of them exchanged.

The fields are those of github.com/letta-ai/letta, letta/schemas/agent_file.py (`AgentFileSchema.agents` and
`MessageSchema`); a file of the first version is one agent. What users and tools say is wrapped as in letta/system.py
(`package_user_message`, `package_function_response`). An export holds the last messages of an agent and numbers them
again each time (`message-0`), so a key is made of time and role.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from mnemolog.adapters.importers.fields import fixed_names
from mnemolog.adapters.importers.format import Format, Found, each_message
from mnemolog.adapters.importers.source import decode
from mnemolog.adapters.importers.turn import fitting_calls
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.message_content import calls_text, content_text

_NAMES: Final = {
    "text": ["content"],
    "role": ["role"],
    "session": ["agent name"],
    "agent": ["agent name"],
    "speaker": ["name"],
    "key": ["created_at and role"],
    "time": ["created_at"],
    "tool_calls": ["tool_calls"],
    "metadata": ["tool_call_id"],
}
_SEND: Final = "send_message"
_SAYS_DIRECTLY: Final = "letta_v1_agent"
"""Agents of other types say what they say through a tool; the text beside a tool call is what they think."""
_SAID: Final = ("text", "image")


def recognizes(value: Any) -> bool:
    """Whether a value is an agent file."""
    return isinstance(value, dict) and (_is_agent(value) or any(map(_is_agent, _agents(value)[:1])))


def rows_of(value: Any, session: str) -> Iterator[Found]:
    """Yield what users, agents and tools said. System prompts, events of the program and thoughts are left out."""
    if not isinstance(value, dict):
        raise InvalidInput("agents", f"expected an object, got {type(value).__name__}")
    names: set[str] = set()
    for agent in _agents(value) or [value]:
        if not _is_agent(agent):
            raise InvalidInput("agents", "expected objects with messages")
        name = str(agent.get("name") or session)
        if name in names:
            name = f"{name}-{agent.get('id') or len(names)}"
        names.add(name)
        says_directly = agent.get("agent_type") == _SAYS_DIRECTLY
        for row in each_message(agent["messages"], partial(_row, says_directly=says_directly)):
            yield {"agent name": name} | row if isinstance(row, dict) else row


def _agents(value: dict[str, Any]) -> list[Any]:
    agents = value.get("agents")
    return agents if isinstance(agents, list) else []


def _is_agent(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("messages"), list):
        return False
    return "agent_type" in value or "in_context_message_ids" in value


def _row(message: dict[str, Any], *, says_directly: bool) -> dict[str, Any] | None:
    """Return the row of a message, None if it has no speaker. Raises `InvalidInput`."""
    role, text = message.get("role"), _text(message.get("content"))
    said_at = message.get("created_at")
    row: dict[str, Any] = {"role": role, "created_at": said_at, "created_at and role": said_at and f"{said_at} {role}"}
    if role == "user":
        text, row["name"] = _unwrapped(text), message.get("name")
    elif role == "tool":
        if message.get("name") == _SEND:
            return None
        text = _result(text)
        row["tool_call_id"] = {"tool_call_id": message["tool_call_id"]} if message.get("tool_call_id") else None
    elif role in ("assistant", "approval"):
        row["role"] = "assistant"
        calls = message.get("tool_calls") or []
        if not isinstance(calls, list):
            raise InvalidInput("tool_calls", f"expected a list, got {type(calls).__name__}")
        said = [sent for call in calls if (sent := _sent(call))]
        calls = [call for call in calls if _call(call).get("name") != _SEND]
        if said:
            text = "\n".join(said)
        elif calls and not says_directly:
            text = ""
        row["tool_calls"] = fitting_calls(calls)[0] or None
        text = text or (calls_text(calls) if calls else "")
    else:
        return None
    return row | {"content": text} if text and not text.isspace() else None


def _text(content: Any) -> str:
    if isinstance(content, list):
        content = [part for part in content if isinstance(part, str) or _kind(part) in _SAID]
    return content_text(content)


def _kind(part: Any) -> object:
    return part.get("type") if isinstance(part, dict) else None


def _unwrapped(text: str) -> str:
    """Return what a user said. Events such as a login or a heartbeat are wrapped in the same way, and say nothing."""
    packed = _object(text)
    if "type" not in packed:
        return text
    said = packed.get("message") if packed["type"] == "user_message" else ""
    return said if isinstance(said, str) else text


def _result(text: str) -> str:
    """Return what a tool answered."""
    packed = _object(text)
    answer = packed.get("message") if "status" in packed else None
    return answer if isinstance(answer, str) else text


def _sent(call: Any) -> str:
    """Return the text that a call of `send_message` sends, empty for other calls."""
    function = _call(call)
    if function.get("name") != _SEND:
        return ""
    arguments = function.get("arguments")
    given = _object(arguments) if isinstance(arguments, str) else arguments
    sent = given.get("message") if isinstance(given, dict) else None
    return sent if isinstance(sent, str) else ""


def _call(call: Any) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    return function if isinstance(function, dict) else {}


def _object(text: str) -> dict[str, Any]:
    if not text.lstrip().startswith("{"):
        return {}
    try:
        value = decode(text.encode(errors="surrogatepass"))
    except InvalidInput:
        return {}
    return value if isinstance(value, dict) else {}


FORMAT = Format(
    name="letta", kind="an agent file of Letta", recognizes=recognizes, rows_of=rows_of, names_of=fixed_names(_NAMES)
)
