"""A process that adds texts and prints each one once it is acknowledged: python -m benchmarks.mechanisms.child."""

import os
import sys
from pathlib import Path

acknowledged = os.fdopen(os.dup(sys.stdout.fileno()), "w")  # Some memories put another file in the place of this one.

from benchmarks.mechanisms.protocol import Model  # noqa: E402
from benchmarks.mechanisms.scenarios import adapter_named  # noqa: E402

name, folder, who, count = sys.argv[1:]
memory = adapter_named(name)(Path(folder), Model())
for number in range(int(count)):
    text = f"{who} says the number {number:05d} to the others."
    memory.add("ann", text, session=who)
    print(text, file=acknowledged, flush=True)
memory.close()
