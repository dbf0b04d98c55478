"""The store as tools for a language model: descriptions, schemas and calls.

Independent of protocols and frameworks: adapters convert these tools (docs/adapters/README.md).
"""

from mnemolog.adapters.support.agent_tools.catalogue import CORE as CORE
from mnemolog.adapters.support.agent_tools.catalogue import INSTRUCTIONS as INSTRUCTIONS
from mnemolog.adapters.support.agent_tools.catalogue import TOOLS as TOOLS
from mnemolog.adapters.support.agent_tools.catalogue import Toolset as Toolset
from mnemolog.adapters.support.agent_tools.catalogue import offered as offered
from mnemolog.adapters.support.agent_tools.conversation import ConversationTool as ConversationTool
from mnemolog.adapters.support.agent_tools.conversation import conversation_tools as conversation_tools
from mnemolog.adapters.support.agent_tools.memory import Memory as Memory
from mnemolog.adapters.support.agent_tools.tool import Answer as Answer
from mnemolog.adapters.support.agent_tools.tool import Refusal as Refusal
from mnemolog.adapters.support.agent_tools.tool import Tool as Tool

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
