"""What one warm call of each kind costs: calls of our own functions, connections and queries, in a store of 200 turns.

    python -m tests.budget      writes the figures of today to tests/budget.json, with those of each file

Counts, not times: no other process changes them. They are those of one version of Python.
"""

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import mnemolog
from mnemolog import MemoryStore
from tests.support import HashEncoder

FIGURES = Path(__file__).with_suffix(".json")
PYTHON = (3, 11)
"""Other versions count comprehensions in other ways."""
ROOT = Path(mnemolog.__file__).resolve().parents[1]
OURS = {"api", "domain", "infra", "projections"}
TURNS = 200


class Spent:
    """Counts calls of our own functions by file, connections to projections, and statements of SQLite."""

    def __init__(self) -> None:
        self.files, self.connections, self.queries = Counter[str](), 0, 0

    def _happened(self, frame: Any, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "c_call":
            self.queries += argument.__name__ in ("execute", "executemany")
        elif event == "call" and not code.co_name.startswith("<"):
            path = Path(code.co_filename).resolve()
            if path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in OURS:
                self.files[str(path.relative_to(ROOT))] += 1
            self.connections += code.co_name == "connect" and code.co_filename.endswith("sqlalchemy/engine/base.py")

    def of(self, call: Callable[[], object]) -> dict[str, int]:
        """Return what a call costs."""
        sys.setprofile(self._happened)
        try:
            call()
        finally:
            sys.setprofile(None)
        return {"calls": self.files.total(), "connections": self.connections, "queries": self.queries}


@contextmanager
def warm_calls(folder: Path) -> Iterator[dict[str, Callable[[], object]]]:
    """Yield a call of each kind. Each was made before; make it twice, and look at the second."""
    open_store = partial(MemoryStore.open, folder, model=HashEncoder(), background=False)
    with open_store() as store:
        session = store.start_session("trip", scope="acme/ann")
        turns = [session.record("user", f"word{n} and other{n % 7} things about ferries") for n in range(TURNS)]
        store.rebuild("vectors")
        positions, values = iter([turn.position for turn in turns]), iter(range(TURNS))
        yield {
            "record": lambda: session.record("user", "one more ferry, warm"),
            "recall": lambda: store.recall("ferries and word9"),
            "recall by words": lambda: store.recall("ferries and word9", mode="text"),
            "recall by meaning": lambda: store.recall("ferries and word9", mode="vector"),
            "context": lambda: store.context("ferries and word9", 1_500),
            "fact": lambda: store.fact("user/city", scope="acme/ann"),
            "assert_fact": lambda: session.assert_fact("user/city", next(values), because=[turns[-1]]),
            "forget": lambda: store.forget(positions=next(positions), reason="asked"),
            "status": store.status,
            "open": lambda: open_store().close(),
        }


def main() -> None:
    """Write the figures of today."""
    figures = {}
    with tempfile.TemporaryDirectory() as folder, warm_calls(Path(folder, "memory")) as calls:
        for name, call in calls.items():
            call()
            spent = Spent()
            figures[name] = spent.of(call) | {"files": dict(sorted(spent.files.items()))}
            print(f"{name}: {', '.join(f'{number:,} {of}' for of, number in figures[name].items() if of != 'files')}")
    lines = (f"{json.dumps(name)}: {json.dumps(figure)}" for name, figure in figures.items())
    FIGURES.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
