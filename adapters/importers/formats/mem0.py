"""Memories of mem0: `{"results": […]}`, as `get_all` and `search` return them, an array of memories, or one a line.

The fields are those of github.com/mem0ai/mem0, mem0/configs/base.py (`MemoryItem`: `id`, `memory`, `hash`, `metadata`,
`score`, `created_at`, `updated_at`) and mem0/memory/main.py (`user_id`, `agent_id`, `run_id`, `actor_id`, `role`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from mnemolog.adapters.importers.fields import fixed_names
from mnemolog.adapters.importers.format import Format, Found, each_message

_NAMES: Final = {
    "text": ["memory"],
    "role": ["role"],
    "session": ["run_id", "user_id", "agent_id"],
    "agent": ["agent_id"],
    "speaker": ["actor_id"],
    "key": ["id"],
    "time": ["created_at"],
    "metadata": ["metadata"],
}


def recognizes(value: Any) -> bool:
    """Whether a value is a memory, or an answer that holds memories."""
    if not isinstance(value, dict):
        return False
    results = value.get("results")
    if isinstance(results, list):
        return any(map(_is_memory, results[:10]))
    return _is_memory(value)


def rows_of(value: Any, _session: str) -> Iterator[Found]:
    """Return the memories of a value."""
    found = value["results"] if isinstance(value, dict) and isinstance(value.get("results"), list) else [value]
    return each_message(found, dict)


def _is_memory(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("memory"), str)


FORMAT = Format(
    name="mem0",
    kind="memories of mem0",
    recognizes=recognizes,
    rows_of=rows_of,
    names_of=fixed_names(_NAMES),
)
