"""A process that appends turns one by one and prints each position when it is acknowledged.

appending.py FOLDER SESSION COUNT
"""

import sys
from pathlib import Path

from mnemolog import MemoryStore

folder, session, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
with MemoryStore.open(folder, model=None) as store:
    store.session(session)
    for n in range(count):
        print(store.record(session, "user", f"child {n}").position, flush=True)
