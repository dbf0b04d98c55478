"""A process with a background projector and an encoder that notes every text it is given in a shared file.

projecting.py FOLDER NOTES [STUCK]: with STUCK the encoder never comes back. Prints "encoding" when the model is called
and "open" when the store is. Then it records what it is told on standard input, a line each, prints the positions, and
ends at the end of the input.
"""

import os
import sys
import threading
from pathlib import Path

from mnemolog import MemoryStore
from tests.support import HashEncoder

folder, notes, stuck = Path(sys.argv[1]), sys.argv[2], "STUCK" in sys.argv


class NotingEncoder(HashEncoder):
    def encode(self, texts):
        file = os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, "".join(f"{text}\n" for text in texts).encode())
        os.close(file)
        print("encoding", flush=True)
        if stuck:
            threading.Event().wait()
        return super().encode(texts)


with MemoryStore.open(folder, model=NotingEncoder()) as store:
    store.session("s")
    print("open", flush=True)
    for line in sys.stdin:
        print(store.record("s", "user", line.strip()).position, flush=True)
