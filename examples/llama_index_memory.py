"""A memory block of LlamaIndex: keeps what its short-term memory has no room for (docs/frameworks.md)."""

import asyncio
from typing import Any

from llama_index.core.llms import ChatMessage
from llama_index.core.memory import BaseMemoryBlock, Memory

from mnemolog import AsyncMemoryStore


class MnemologBlock(BaseMemoryBlock[str]):
    """Records what is moved out of the short-term memory; gives the context of the newest message."""

    name: str = "mnemolog"
    session: Any

    async def _aput(self, messages: list[ChatMessage]) -> None:
        said = [{"role": message.role.value, "content": message.content} for message in messages if message.content]
        await self.session.record_many(said)

    async def _aget(self, messages: list[ChatMessage] | None = None, **_: Any) -> str:
        return str(await self.session.context(messages[-1].content)) if messages else ""


async def main() -> str:
    """Return what the memory puts before the model."""
    async with AsyncMemoryStore.open("memory/", model=None) as store:
        block = MnemologBlock(session=await store.session("trip", scope="acme/alice"))
        memory = Memory.from_defaults(session_id="trip", memory_blocks=[block], token_limit=60, token_flush_size=20)
        for number in range(9):
            await memory.aput(ChatMessage(role="user", content=f"My dog number {number} is called Nero the {number}."))
        return (await memory.aget(input="What is my dog number 0 called?"))[0].content


shown = asyncio.run(main())  # With the token limit of the example, the first messages come from the store.
