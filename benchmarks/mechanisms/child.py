"""A process that adds texts and prints each one once it is acknowledged: python -m benchmarks.mechanisms.child."""

import sys
from pathlib import Path

from benchmarks.mechanisms.protocol import Model
from benchmarks.mechanisms.scenarios import adapter_named

name, folder, who, count = sys.argv[1:]
memory = adapter_named(name)(Path(folder), Model())
for number in range(int(count)):
    text = f"{who} says the number {number:05d} to the others."
    memory.add("ann", text, session=who)
    print(text, flush=True)
memory.close()
