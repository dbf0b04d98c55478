"""Tools for a framework that records turns itself: the model recalls, and stores single facts.

The caller decides what these tools may see and where they write, never the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from mnemolog.adapters.support.agent_tools.tool import NOTHING_DONE, Refusal, read_arguments, schema_of
from mnemolog.domain.encoding import to_printable_json
from mnemolog.domain.errors import MnemologError
from mnemolog.projections.recall.answer import Hit


class _Recall(msgspec.Struct, kw_only=True):
    query: Annotated[str, Meta(description="What to look for, in the words that may have been used.")]


class _Remember(msgspec.Struct, kw_only=True):
    text: Annotated[str, Meta(description="One fact that can be understood without this conversation.")]


class ConversationTool(msgspec.Struct, frozen=True, kw_only=True):
    """A blocking tool. `call` gets checked arguments."""

    name: str
    description: str
    arguments: type[msgspec.Struct]
    call: Callable[[Any], Mapping[str, Any]]

    def function(self) -> dict[str, Any]:
        """Return it in OpenAI's function format."""
        return {"name": self.name, "description": self.description, "parameters": schema_of(self.arguments)}

    def answer(self, arguments: Mapping[str, Any]) -> str:
        """Return the answer as JSON, `error` and `hint` for arguments and errors of mnemolog. Raises others."""
        try:
            answer = self.call(read_arguments(self.arguments, arguments))
        except msgspec.ValidationError as error:
            answer = {"error": str(error), "hint": NOTHING_DONE}
        except MnemologError as error:
            answer = {"error": str(error), "hint": Refusal.of(error).hint}
        return to_printable_json(answer).decode()


def conversation_tools(
    recall: Callable[[str], Iterable[Hit]], remember: Callable[[str], str], *, prefix: str = ""
) -> dict[str, ConversationTool]:
    """Return the tools `recall` and `remember` by their names, which begin with `prefix`.

    `recall` answers a query, within what this model may see; `remember` records a text and returns what was kept.
    """
    tools = (
        ConversationTool(
            name=f"{prefix}recall",
            description="Find what was said in any earlier conversation, word for word, with date, session and "
            "position in the log. Use it before you answer about anything that may have been discussed before, or that "
            "a summary left out.",
            arguments=_Recall,
            call=lambda asked: {
                "found": [
                    {name: getattr(hit, name) for name in ("text", "role", "said_at", "session", "position")}
                    for hit in recall(asked.query)
                ]
            },
        ),
        ConversationTool(
            name=f"{prefix}remember",
            description="Keep something for later conversations. Turns are kept anyway: use this for a finding or "
            "a decision.",
            arguments=_Remember,
            call=lambda asked: {"kept": remember(asked.text)},
        ),
    )
    return {tool.name: tool for tool in tools}
