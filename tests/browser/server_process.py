"""A server process as `mnemolog serve` is one, but with the model of these tests:

python -m tests.browser.server_process FOLDER [--write] [--require-token] [--model NAME]
"""

import argparse
import asyncio
from pathlib import Path

from mnemolog.server.application import serve_store
from mnemolog.server.http.config import ServerConfig
from tests.browser.long_memory import encoder


def main() -> None:
    """Serve the store in a folder on a free port until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--require-token", action="store_true")
    parser.add_argument("--model")
    given = parser.parse_args()
    config = ServerConfig(port=0, write=given.write, require_token=given.require_token)
    asyncio.run(
        serve_store(
            given.folder,
            config,
            started=lambda url: print(f"console {url}  API {url}v1", flush=True),
            model=given.model or encoder(),
        )
    )


if __name__ == "__main__":
    main()
