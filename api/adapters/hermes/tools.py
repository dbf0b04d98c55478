"""The tools that the model is given, as OpenAI describes functions."""

from __future__ import annotations

from typing import Any, Final

RECALL: Final = "mnemolog_recall"
REMEMBER: Final = "mnemolog_remember"


def _tool(name: str, description: str, **texts: str) -> dict[str, Any]:
    properties = {key: {"type": "string", "description": text} for key, text in texts.items()}
    parameters = {"type": "object", "properties": properties, "required": list(texts)}
    return {"name": name, "description": description, "parameters": parameters}


TOOLS: Final = [
    _tool(
        RECALL,
        "Find what was said in any earlier conversation, word for word, with date, session and position in the log. "
        "Use it before you answer what may have been talked about before, or what a summary left out.",
        query="What to look for, in the words that may have been used.",
    ),
    _tool(
        REMEMBER,
        "Keep something for later conversations. What is said is kept anyway: use this for a finding or a decision.",
        text="One fact that can be understood without this conversation.",
    ),
]
