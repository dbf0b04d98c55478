"""A process that appends turns one by one and goes on after a failure.

appending.py FOLDER SESSION COUNT: prints the position of each turn that is acknowledged, the name of the error of each
that is not.
"""

import sys
from pathlib import Path

from mnemolog import MemoryStore, MnemologError

folder, session, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
with MemoryStore.open(folder, model=None) as store:
    store.session(session)
    for n in range(count):
        try:
            print(store.record(session, "user", f"child {n}").position, flush=True)
        except MnemologError as error:
            print(type(error).__name__, flush=True)
