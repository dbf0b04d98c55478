"""The store as tools for a language model: descriptions, schemas and calls.

Independent of protocols and frameworks: adapters convert these tools (docs/adapters/README.md).
"""

from mnemolog.adapters.support.agent_tools.catalogue import CORE, INSTRUCTIONS, TOOLS, Toolset, offered
from mnemolog.adapters.support.agent_tools.tool import (
    Answer,
    ConversationTool,
    Memory,
    Refusal,
    Tool,
    conversation_tools,
)

__all__ = [
    "CORE",
    "INSTRUCTIONS",
    "TOOLS",
    "Answer",
    "ConversationTool",
    "Memory",
    "Refusal",
    "Tool",
    "Toolset",
    "conversation_tools",
    "offered",
]
