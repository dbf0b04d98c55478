"""A process that appends turns one by one and goes on after a failure, whose disk is watched or made to fail.

syncing.py FOLDER COUNT: prints the position of each turn that is acknowledged, the name of the error of each that is
not.
"""

import sys
from pathlib import Path

from mnemolog import MemoryStore, MnemologError

folder, count = Path(sys.argv[1]), int(sys.argv[2])
with MemoryStore.open(folder, model=None) as store:
    for n in range(count):
        try:
            print(store.record("s", "user", f"turn {n}").position, flush=True)
        except MnemologError as error:
            print(type(error).__name__, flush=True)
