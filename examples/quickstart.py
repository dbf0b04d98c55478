"""The README's example as a script, in a temporary folder: python examples/quickstart.py [--text-only]"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from mnemolog import MemoryStore

model = None if "--text-only" in sys.argv else "all-MiniLM-L6-v2"

with tempfile.TemporaryDirectory() as folder, MemoryStore.open(Path(folder) / "memory", model=model) as store:
    chat = store.session("trip", scope="acme/alice")
    lisbon = chat.record("user", "We moved to Lisbon in March.", key="t1")
    chat.record("user", "Nero hates the stairs of the new flat.", key="t2")
    chat.record("user", "We moved again, to Porto.", key="t3")
    answer = store.recall("Where did we move?", k=2, scope="acme")
    for hit in answer.hits:
        print(f"{hit.relevance:.2f}  @{hit.position}  {hit.text}")
    print(f"head {answer.head}, vectors to {answer.vectors_cover}, legs {answer.legs}")
    earlier = store.recall("Where did we move?", k=1, as_of=lisbon.position)
    print(f"known at position {earlier.head}: {earlier.hits[0].text}")
    print("history is whole:", store.verify().sound)
