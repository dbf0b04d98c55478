"""Agent files of Letta (`.af`): a JSON document with agents and the messages that each of them exchanged.

The fields are those of github.com/letta-ai/letta, letta/schemas/agent_file.py (`AgentFileSchema.agents` and
`MessageSchema`); a file of the first version is one agent. What users and tools say is wrapped as in letta/system.py
(`package_user_message`, `package_function_response`). An export holds the last messages of an agent and numbers them
again each time (`message-0`), so a key is made of time and role.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from mnemolog.adapters.importers.fields import OF
from mnemolog.adapters.importers.format import Conversation, Format, shared_by
from mnemolog.adapters.importers.source import decode
from mnemolog.adapters.importers.turn import NOT_SAID, LeftOut
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.message_content import content_text
from mnemolog.domain.role import parse_role

_SEND: Final = "send_message"
_SAYS_DIRECTLY: Final = "letta_v1_agent"
"""Agents of other types say what they say through a tool; the text beside a tool call is what they think."""


def recognizes(value: Any) -> bool:
    """Whether a value is an agent file."""
    return isinstance(value, dict) and (_is_agent(value) or any(map(_is_agent, _agents(value)[:1])))


def _conversations(value: Any, session: str) -> Iterator[Conversation]:
    """Yield the messages of each agent."""
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
        yield Conversation(agent["messages"], {**shared_by(agent), OF + "name": name})


def _agents(value: dict[str, Any]) -> list[Any]:
    agents = value.get("agents")
    return agents if isinstance(agents, list) else []


def _is_agent(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("messages"), list):
        return False
    return "agent_type" in value or "in_context_message_ids" in value


def _said(message: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of what a user, the agent or a tool said. Raises `InvalidInput`; `LeftOut` for anything else.

    System prompts, events of the program and thoughts are left out.
    """
    role, text = message.get("role"), content_text(message.get("content"))
    calls: list[Any] = []
    if role == "user":
        text = _unwrapped(text)
    elif role == "tool" and message.get("name") != _SEND:
        text = _result(text)
    elif role in ("assistant", "approval"):
        text, calls = _of_agent(message, text)
    else:
        parse_role(role)
        raise LeftOut(NOT_SAID)
    said_at, answered = message.get("created_at"), message.get("tool_call_id") if role == "tool" else None
    return message | {
        "role": "assistant" if role == "approval" else role,
        "content": text,
        "name": message.get("name") if role == "user" else None,
        "created_at and role": said_at and f"{said_at} {role}",
        "tool_calls": calls,
        "tool_call_id": {"tool_call_id": answered} if answered else None,
    }


def _of_agent(message: dict[str, Any], text: str) -> tuple[str, list[Any]]:
    """Return what an agent said, and its calls of tools."""
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list):
        raise InvalidInput("tool_calls", f"expected a list, got {type(calls).__name__}")
    sent = "\n".join(filter(None, map(_sent, calls)))
    others = [call for call in calls if _call(call).get("name") != _SEND]
    thinks = others and message.get(OF + "agent_type") != _SAYS_DIRECTLY
    return sent or ("" if thinks else text), others


def _unwrapped(text: str) -> str:
    """Return what a user said. Events such as a login or a heartbeat are wrapped in the same way, and say nothing."""
    packed = _object(text)
    if "type" not in packed:
        return text
    if packed["type"] != "user_message":
        raise LeftOut(NOT_SAID)
    said = packed.get("message")
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


FORMAT: Final = Format(
    name="letta",
    kind="an agent file of Letta",
    recognizes=recognizes,
    fields={
        "text": ["content"],
        "role": ["role"],
        "session": [OF + "name"],
        "agent": [OF + "name"],
        "speaker": ["name"],
        "key": ["created_at and role"],
        "time": ["created_at"],
        "tool_calls": ["tool_calls"],
        "metadata": ["tool_call_id"],
    },
    conversations=_conversations,
    said=_said,
)
