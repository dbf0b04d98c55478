"""A process that is killed at the Nth commit or save, before or after it. Arguments: the store, folders, N."""

import os
import signal
import sys
from importlib import import_module
from pathlib import Path

from mnemolog import MemoryStore
from mnemolog.adapters.importers.transcripts import Transcripts
from mnemolog.adapters.importers.transcripts.recording import FileOffsets
from mnemolog.infra.log.event_log import EventLog

store, *folders, left = sys.argv[1:]
steps = int(left)


def step() -> None:
    global steps
    steps -= 1
    if steps == 0:
        os.kill(os.getpid(), signal.SIGKILL)


def dying(call):
    def called(*args, **kwargs):
        step()
        answer = call(*args, **kwargs)
        step()
        return answer

    return called


import_module("mnemolog.adapters.importers.import_files").BATCH_MAX = 20  # The package has a function of that name.
FileOffsets.save = dying(FileOffsets.save)
made = EventLog.__init__


def init(self, *args, **kwargs):
    made(self, *args, **kwargs)
    self.appends.transact = dying(self.appends.transact)


EventLog.__init__ = init
with MemoryStore.open(store, model=None, background=False) as opened, Transcripts(opened) as transcripts:
    transcripts.catch_up(path for folder in folders for path in Path(folder).rglob("*.jsonl"))
