"""Bytes of the log and CPU for edits of one file by Anthropic's memory tool.

python benchmarks/memory_tool.py [--edits 1000] [--kilobytes 50]

Needs the extra `anthropic-memory`. The file has words drawn from 5,000; each edit inserts one short line.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path

from mnemolog import MemoryStore
from mnemolog.adapters.anthropic_memory import MemoryTool

NOTES = "/memories/notes.md"
LINE_WORDS = 10


def main() -> None:
    """Create a file, edit it, and print what the folder of the store holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edits", type=int, default=1_000)
    parser.add_argument("--kilobytes", type=int, default=50)
    given = parser.parse_args()
    chance, text = random.Random(1), ""
    while len(text) < given.kilobytes * 1_000:
        text += " ".join(f"word{chance.randrange(5_000)}" for _ in range(LINE_WORDS)) + "\n"
    lines = text.count("\n")
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent, "memory")
        with MemoryStore.open(folder, model=None, background=False) as store:
            tool = MemoryTool(store)
            tool.call({"command": "create", "path": NOTES, "file_text": text})
            began = time.process_time()
            for number in range(given.edits):
                line = chance.randrange(lines)
                tool.call({"command": "insert", "path": NOTES, "insert_line": line, "insert_text": f"edit {number}"})
            spent = time.process_time() - began
        print(f"{given.edits:,} edits of {len(text):,} bytes: {spent * 1_000 / given.edits:.1f} ms of CPU each")
        for file in sorted(folder.rglob("*.db")):
            print(f"{file.relative_to(folder)}: {file.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
