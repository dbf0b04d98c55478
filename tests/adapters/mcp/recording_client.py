"""A client that records for as long as it lives, and prints the number of each turn that was acknowledged.

python -m tests.adapters.mcp.recording_client FOLDER|URL SESSION
"""

import asyncio
import sys
from itertools import count

from tests.adapters.mcp.serving import answer, over_http, over_stdio


async def main(where: str, session: str) -> None:
    async with over_http(where) if where.startswith("http") else over_stdio(where) as client:
        for number in count():
            await answer(client, "remember", session=session, text=f"number {number}", key=str(number))
            print(number, flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
