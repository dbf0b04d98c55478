"""The memory tool for the runner of Anthropic's SDK."""

from __future__ import annotations

from functools import partial
from typing import Any

from anthropic.lib.tools import BetaAbstractMemoryTool, BetaAsyncAbstractMemoryTool

from mnemolog.adapters.anthropic_memory.files import MemoryFiles
from mnemolog.adapters.support.store_access import with_pools
from mnemolog.aio.store import AsyncMemoryStore
from mnemolog.store import MemoryStore


class MemoryTool(BetaAbstractMemoryTool):
    """The memory tool over the files of one scope.

    - `store`: the store that keeps the files
    - `scope`: who owns them; None for the scope that the store is open for
    - `how`: further arguments of `BetaAbstractMemoryTool`, such as `cache_control`

    ::

        tool = MemoryTool(store, scope="acme/alice")
        tool.call({"command": "create", "path": "/memories/likes.md", "file_text": "tea"})
    """

    def __init__(self, store: MemoryStore, *, scope: str | None = None, **how: Any) -> None:
        super().__init__(**how)
        self._files = MemoryFiles(store, scope)

    def _answer(self, command: Any) -> str:
        return self._files.answer(command)

    view = create = str_replace = insert = delete = rename = _answer


class AsyncMemoryTool(BetaAsyncAbstractMemoryTool):
    """`MemoryTool` for asyncio. Each command runs in a thread of the store."""

    def __init__(self, store: MemoryStore | AsyncMemoryStore, *, scope: str | None = None, **how: Any) -> None:
        super().__init__(**how)
        blocking, self._pools = with_pools(store)
        self._files = MemoryFiles(blocking, scope)

    async def _answer(self, command: Any) -> str:
        return await self._pools.write(partial(self._files.answer, command))

    view = create = str_replace = insert = delete = rename = _answer
