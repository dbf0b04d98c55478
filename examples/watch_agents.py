"""Record what coding agents write, as they write it: a synthetic session of Claude Code, followed while it runs.

Run: python examples/watch_agents.py
"""

from __future__ import annotations

import json
import tempfile
import threading
from pathlib import Path

from mnemolog import MemoryStore
from mnemolog.adapters.watch import Report, Watcher

SESSION = "5e55104a-0000-4000-8000-000000000001"


def write(file: Path, uuid: str, parent: str | None, role: str, text: str) -> None:
    """Append a line as the agent does."""
    line = {"type": role, "uuid": uuid, "parentUuid": parent, "sessionId": SESSION, "cwd": "/home/ada/kettle"}
    line |= {"timestamp": "2026-03-01T09:00:00.000Z", "message": {"role": role, "content": text}}
    with file.open("a") as transcript:
        transcript.write(json.dumps(line) + "\n")


def main() -> None:
    """Follow a session in which the user takes a question back."""
    with tempfile.TemporaryDirectory() as folder:
        transcript = Path(folder, "projects", "-home-ada-kettle", f"{SESSION}.jsonl")
        transcript.parent.mkdir(parents=True)
        with (
            MemoryStore.open(Path(folder, "memory"), model=None, background=False) as store,
            Watcher(store, [Path(folder, "projects")]) as watcher,
        ):
            news = threading.Semaphore(0)

            def tell(report: Report) -> None:
                print(f"recorded {report.recorded}, switches {report.switches}")
                news.release()

            following = threading.Thread(target=watcher.follow, args=(tell,), kwargs={"poll_s": 0.1})
            following.start()
            write(transcript, "u1", None, "user", "Why does the kettle test fail?")
            news.acquire()
            write(transcript, "u2", "u1", "assistant", "The lid is open.")
            news.acquire()
            write(transcript, "u3", "u2", "user", "Glue it shut.")
            news.acquire()
            write(transcript, "u4", "u2", "user", "Close it.")  # Replaces u3: both continue u2.
            news.acquire()
            watcher.stop.set()
            following.join()
            session = store.session(SESSION)
            print("shown:", [turn.text for turn in session.turns()])
            print("hidden as well:", [turn.text for turn in session.turns(hidden=True)])
            print("scope:", session.scope, "- recalled:", session.recall("lid").hits[0].text)


if __name__ == "__main__":
    main()
