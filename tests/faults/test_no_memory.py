"""P13: no memory: an error, a process that lives, and a store that works when there is memory again."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from mnemolog import MemoryStore, MnemologError, NewTurn
from mnemolog.domain.values import TEXT_BYTES_MAX, VALUE_BYTES_MAX

pytestmark = pytest.mark.promise("P13")

STEP_BYTES = 256 << 10
STEPS = 24
CHILD_S = 120
OPERATIONS = {
    "record": lambda store, number: store.session("trip").record("user", "x" * TEXT_BYTES_MAX, key=f"k{number}"),
    "record_many": lambda store, number: store.record_many(
        [NewTurn(session="trip", role="user", text="y" * (TEXT_BYTES_MAX // 2), key=f"m{number}/{n}") for n in range(4)]
    ),
    "set": lambda store, number: store.session("trip").set(f"k{number}", "z" * (VALUE_BYTES_MAX - 100)),
}


def used_bytes():
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * os.sysconf("SC_PAGE_SIZE")


def try_with_little_memory(folder, operation, encrypted):
    """Runs in a child, which must not end: the operation with a little more memory each time.

    Some is always left: `cryptography` aborts without a few hundred bytes.
    """
    refused = 0
    with MemoryStore.open(folder, model=None, background=False, encrypt=encrypted) as store:
        session = store.session("trip")
        session.record("user", "before", key="before")
        unlimited = resource.getrlimit(resource.RLIMIT_AS)
        for number in range(STEPS):
            resource.setrlimit(resource.RLIMIT_AS, (used_bytes() + (number + 1) * STEP_BYTES, unlimited[1]))
            try:
                OPERATIONS[operation](store, number)
            except (MemoryError, MnemologError):
                refused += 1
            finally:
                resource.setrlimit(resource.RLIMIT_AS, unlimited)
        OPERATIONS[operation](store, STEPS)
        session.record("user", "after", key="after")
        assert store.recall("after").hits[0].text == "after"
        assert store.verify().sound
    print(refused)


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_large_write_without_memory_is_refused_and_the_process_lives(tmp_path, record_property, operation, encrypted):
    """msgspec's own `encode` ended the process with a segmentation fault."""
    code = f"from {__name__} import try_with_little_memory as t; t({str(tmp_path / 'm')!r}, {operation!r}, {encrypted})"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=CHILD_S, check=False)
    assert child.returncode == 0, f"{child.returncode}: {child.stderr[-6_000:]}"
    refused = int(child.stdout)
    record_property("tried", refused)
    assert refused > 0
    with MemoryStore.open(tmp_path / "m", model=None, create=False) as store:
        assert store.verify().sound
