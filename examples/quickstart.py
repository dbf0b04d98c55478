"""The README's first screen as a script: python examples/quickstart.py [--text-only]"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from mnemolog import MemoryStore

model = None if "--text-only" in sys.argv else "all-MiniLM-L6-v2"

with tempfile.TemporaryDirectory() as folder, MemoryStore.open(Path(folder) / "memory", model=model) as store:
    session = store.start_session("trip", agent="assistant", scope="acme/support/alice")
    turn = session.record("user", "I moved to Lisbon in March.", key="t1")
    session.record("assistant", "How does the dog like the new flat?", key="t2")
    session.record("user", "Nero hates the stairs.", key="t3")
    answer = store.recall("where does she live since she moved?", k=2, scope="acme/support")
    for hit in answer.hits:
        print(f"{hit.score:.3f}  @{hit.position}  {hit.text}")
    print(f"head {answer.head}, vectors to {answer.vectors_to}, legs {answer.legs}")
    print(f"known at position {turn.position}:", store.replay(to=turn.position).sessions[0].turns[0].text)
    print("sound:", store.verify().sound)
