"""Our recorder beside the eventsourcing library's own on SQLite, one append at a time and in batches.

`eventsourcing_sqlalchemy` takes part where it is installed. The figures stand in ADR 2.
"""

from __future__ import annotations

import argparse
import importlib.util
import tempfile
from pathlib import Path
from time import perf_counter
from uuid import uuid4

from eventsourcing.persistence import ApplicationRecorder, InfrastructureFactory, StoredEvent

from mnemolog.eventsourcing import LogApplicationRecorder
from mnemolog.infra.log.open import open_log
from mnemolog.infra.runtime.clock import SystemClock

STATE = b"x" * 250


def rate(recorder: ApplicationRecorder, *, calls: int, batch: int) -> float:
    """Return events per second over `calls` appends of `batch` events each."""
    stacks = []
    for _ in range(calls):
        originator = uuid4()
        stacks.append([StoredEvent(originator, version, "turn", STATE) for version in range(1, batch + 1)])
    started = perf_counter()
    for stack in stacks:
        recorder.insert_events(stack)
    return calls * batch / (perf_counter() - started)


def library_recorder(module: str, env: dict[str, str]) -> ApplicationRecorder:
    """Return the application recorder of one of the library's persistence modules."""
    return InfrastructureFactory.construct({"PERSISTENCE_MODULE": module, **env}).application_recorder()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=1_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log = open_log(folder / "ours", clock=SystemClock(), create=True)
        recorders: dict[str, ApplicationRecorder] = {
            "mnemolog (synchronous=FULL, chained)": LogApplicationRecorder(log),
            "eventsourcing.sqlite": library_recorder(
                "eventsourcing.sqlite", {"SQLITE_DBNAME": str(folder / "library.db")}
            ),
        }
        if importlib.util.find_spec("eventsourcing_sqlalchemy"):
            recorders["eventsourcing_sqlalchemy"] = library_recorder(
                "eventsourcing_sqlalchemy", {"SQLALCHEMY_URL": f"sqlite:///{folder / 'orm.db'}"}
            )
        print("| recorder | one at a time | batches of 100 |\n| --- | ---: | ---: |")
        for label, recorder in recorders.items():
            one = rate(recorder, calls=arguments.calls, batch=1)
            many = rate(recorder, calls=arguments.calls // 10, batch=100)
            print(f"| {label} | {one:,.0f}/s | {many:,.0f}/s |")
        log.close()


if __name__ == "__main__":
    main()
