"""Processes that record turns until they are refused, and one that reads what a store holds.

They answer through a pipe, as those of `tests.children.workers` do.
"""

import random
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from mnemolog import MemoryStore, MnemologError
from mnemolog.infra.sqlite import driver
from tests.support import HashEncoder, in_thread


def record_until_refused(pipe: Connection, folder: str, label: str, threads: int, go: Any, background: bool) -> None:
    """Record turns, some of them in new sessions, while `go` is set, until an append is refused. Then close the store.

    Sends `("recorded", began, session, text)` for each turn when it is acknowledged, `("waiting",)` where `go` is not
    set, `("refused", class, message)`, and `("closed",)`. `began` is when the call began, in seconds of the system.
    """
    store = MemoryStore.open(folder, model=HashEncoder(dimension=16) if background else None)
    sending = threading.Lock()

    def send(*message: Any) -> None:
        with sending:
            pipe.send(message)

    def record(name: str) -> None:
        rng, number = random.Random(name), 0
        try:
            while True:
                if not go.is_set():
                    send("waiting")
                    go.wait()
                began = time.monotonic()
                if not number or rng.random() < 0.2:
                    session = store.session(f"{name}-{number}")
                text = f"{name}/{number}"
                session.record("user", text)
                send("recorded", began, session.id, text)
                number += 1
        except MnemologError as error:
            send("refused", type(error).__name__, str(error))

    works = [in_thread(lambda name=f"{label}-{n}": record(name)) for n in range(threads)]
    for work in works:
        work.result()
    store.close()
    send("closed")


def record_some(pipe: Connection, folder: str, label: str, count: int) -> None:
    """Open a store, record turns in a session, and close it. Send the texts, or what prevented it."""
    try:
        with MemoryStore.open(folder, model=None) as store:
            session = store.session(label)
            for n in range(count):
                session.record("user", f"{label}/{n}")
            texts = [f"{label}/{n}" for n in range(count)]
        pipe.send(texts)
    except MnemologError as error:
        pipe.send(repr(error))


def read_sessions(pipe: Connection, folder: str) -> None:
    """Open a store and send what it holds: `{session: [texts]}`, and whether its history is sound."""
    try:
        with MemoryStore.open(folder, model=None, create=False) as store:
            found = {
                summary.session: [turn.text for turn in store.turns(summary.session, limit=1_000_000)]
                for summary in store.sessions()
            }
            pipe.send((found, store.verify(contents=True).sound))
    except MnemologError as error:
        pipe.send(repr(error))


def change_until_told(pipe: Connection, folder: str, backup: str, rounds: int) -> None:
    """Record, forget, which wipes the keys, checkpoint the log and, now and then, take a backup. Send `rounds`."""
    with MemoryStore.open(folder, model=None) as store:
        for number in range(rounds):
            store.session(f"gone {number}").record("user", "to be forgotten" * 100)
            if number % 3 == 0:
                store.forget(session=f"gone {number}", reason="asked")
            with store.parts.log.engine.pool.connect() as connection:
                connection.exec_driver_sql(f"PRAGMA wal_checkpoint({('PASSIVE', 'RESTART', 'TRUNCATE')[number % 3]})")
            if number % 20 == 0:
                store.backup(backup, keys=f"{backup}-keys", replace=True)
    pipe.send(rounds)


def try_to_lock(pipe: Connection, database: str) -> None:
    """Send whether the lock to write a database is free, and the one to have it alone."""
    said = []
    for name, statement in (("writing", "BEGIN IMMEDIATE"), ("alone", "PRAGMA journal_mode=DELETE")):
        connection = driver.connect(Path(database), timeout=0)
        try:
            connection.execute(statement).fetchall()
            said.append(f"{name}: free")
        except driver.dbapi2.OperationalError as error:
            said.append(f"{name}: {str(error).split()[-1]}")
        connection.close()
    pipe.send(", ".join(said))
