"""A process that appends a turn, stops itself inside a unit of work (SIGSTOP), and finishes it once it is continued.

stopping.py FOLDER WAY: it stops while it appends to the head it knows (`compared`), or under the log's lock (`locked`).
"""

import os
import signal
import sys
from pathlib import Path

from mnemolog.domain.errors import MnemologError
from mnemolog.infra import postgres
from mnemolog.infra.log.open import open_log
from mnemolog.infra.runtime.clock import SystemClock

STREAM = "eventsourcing.events/test/child"

postgres.IDLE_IN_TRANSACTION_S = 0.5
log = open_log(Path(sys.argv[1]), clock=SystemClock(), create=False)
if sys.argv[2] == "compared":
    log.appends.transact(lambda tx: tx.append_stored(STREAM, "t", b"before"))
stops = []


def work(tx):
    if not stops:
        stops.append(True)
        print("stopping", flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
    return tx.append_stored(STREAM, "t", b"after")


try:
    print(log.appends.transact(work), flush=True)
except MnemologError as error:
    print(type(error).__name__, flush=True)
log.close()
