"""Hermes' own memory manager with mnemolog behind it: python examples/hermes_agent.py

It makes the calls that Hermes makes to a memory provider: turns, a new session, an undo. It needs no model and no key.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

with tempfile.TemporaryDirectory() as folder:
    os.environ["HERMES_HOME"] = folder
    from agent.memory_manager import MemoryManager

    from mnemolog import MemoryStore
    from mnemolog.adapters.hermes import MnemologProvider

    provider = MnemologProvider()
    provider.save_config({"model": "none"}, folder)
    manager = MemoryManager()
    manager.add_provider(provider)
    manager.initialize_all(session_id="monday", platform="cli", agent_context="primary")

    manager.sync_all("My dog Nero hates the stairs.", "Poor Nero!", session_id="monday")
    manager.commit_session_boundary_async([], new_session_id="tuesday", parent_session_id="monday")
    manager.sync_all("Good morning.", "Good morning!", session_id="tuesday")
    manager.flush_pending()
    manager.queue_prefetch_all("Good morning.", session_id="tuesday")
    manager.flush_pending()
    print(manager.prefetch_all("What does my dog hate?"))

    said = [{"role": "user", "content": "Good morning."}, {"role": "assistant", "content": "Good morning!"}]
    manager.sync_all("Forget it.", "Forget what?", session_id="tuesday", messages=[*said])
    manager.on_session_switch("tuesday", rewound=True)
    messages = [*said, {"role": "user", "content": "Never mind."}]
    manager.sync_all("Never mind.", "All right.", session_id="tuesday", messages=messages)
    manager.shutdown_all()

    with MemoryStore.open(Path(folder) / "mnemolog" / "store", model=None) as store:
        print("tuesday:", [turn.text for turn in store.session("tuesday").turns()])
        print("sound:", not store.verify().findings)
