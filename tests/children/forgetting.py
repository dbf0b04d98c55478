"""What child processes do about forgetting: be killed in the middle of it, or have the store open meanwhile."""

import os
import signal
from itertools import count
from multiprocessing.connection import Connection
from typing import Any

from mnemolog import MemoryStore
from mnemolog.application.visible_events import VisibleEvents
from mnemolog.audit import subject
from mnemolog.forgetting import service
from mnemolog.forgetting.service import Forgetting
from mnemolog.infra.log.transaction import Transaction
from tests.children.workers import telling_failures
from tests.support import FakeClock, HashEncoder

DIMENSION = 16


def forget_and_die(pipe: Connection, folder: str, session: str, step: str) -> None:
    """Forget a session and be killed when `step` is done."""

    def reached(done: str) -> None:
        if done == step:
            pipe.send(done)
            os.kill(os.getpid(), signal.SIGKILL)

    Forgetting.reached = staticmethod(reached)
    with MemoryStore.open(folder, model=HashEncoder(dimension=DIMENSION), background=False) as store:
        store.forget(session=session, reason="to be killed")
    pipe.send("returned")


@telling_failures
def keep_open(pipe: Connection, folder: str, session: str, known: Any, go_on: Any) -> None:
    """Read, recall and embed; when told that something was forgotten, do so again, and tell both."""
    with MemoryStore.open(folder, model=HashEncoder(dimension=DIMENSION), background=False) as store:
        for _ in range(2):
            handle = store.session(session)
            hits = store.recall("quokka wombat", k=50).hits
            near = store.recall("quokka wombat", k=50, mode="vector").hits
            pipe.send(
                (
                    [turn.text for turn in handle.turns()],
                    handle.all(),
                    [hit.text for hit in hits if hit.session == session],
                    [hit.text for hit in near if hit.session == session],
                )
            )
            known.wait()
            go_on.wait()
    pipe.send("closed")


def apply_retention_and_die(_pipe: Connection, folder: str, now: int, kill: int) -> None:
    """Forget what is too old, in small batches, and be killed after the `kill`-th step, counted around."""
    steps = 0

    def reached(_done: str) -> None:
        nonlocal steps
        steps += 1
        if steps > kill % 7:
            os.kill(os.getpid(), signal.SIGKILL)

    Forgetting.reached = staticmethod(reached)
    service.BATCH_MAX = 5
    with MemoryStore.open(folder, model=None, background=False, clock=FakeClock(now)) as store:
        store.admin.apply_retention()
    os.kill(os.getpid(), signal.SIGKILL)


def approve_and_die(_pipe: Connection, folder: str, kill: int) -> None:
    """Approve all that waits, and be killed at the `kill`-th step: an event is staged, a group is stored, `reached`."""
    steps = 0

    def step(*_: Any) -> None:
        nonlocal steps
        steps += 1
        if steps > kill:
            os.kill(os.getpid(), signal.SIGKILL)

    append, transact = Transaction.append, VisibleEvents.transact

    def stage(*given: Any, **how: Any) -> Any:
        step()
        return append(*given, **how)

    def stored(*given: Any, **how: Any) -> Any:
        made = transact(*given, **how)
        step()
        return made

    Forgetting.reached = staticmethod(step)
    Transaction.append, VisibleEvents.transact = stage, stored  # type: ignore[method-assign]
    with MemoryStore.open(folder, model=None, background=False) as store:
        store.approve([item.position for item in store.proposals()])
    os.kill(os.getpid(), signal.SIGKILL)


def write_subject_and_die(_pipe: Connection, folder: str, target: str, kill: int) -> None:
    """Write the file of a person, and be killed at the `kill`-th value in it, or after the last."""
    encode, steps = subject.to_printable_json, count()

    def encoded(*given: Any, **how: Any) -> bytes:
        if next(steps) == kill:
            os.kill(os.getpid(), signal.SIGKILL)
        return encode(*given, **how)

    subject.to_printable_json = encoded
    with MemoryStore.open(folder, model=None, background=False) as store:
        store.audit.subject(target, scope="acme", replace=True)
    os.kill(os.getpid(), signal.SIGKILL)
