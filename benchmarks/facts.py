"""What facts cost: python benchmarks/facts.py [FOLDER]. Asserting is measured in turns with recording."""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Callable
from statistics import median, quantiles
from time import perf_counter
from typing import Any

from mnemolog import MemoryStore

SCOPES, KEYS, ASSERTIONS, ROUNDS = 100, 50, 100_000, 1_000


def timed(times: list[float], call: Callable[..., Any], *given: Any, **how: Any) -> Any:
    """Call a function and note how long it took, in milliseconds."""
    began = perf_counter()
    result = call(*given, **how)
    times.append((perf_counter() - began) * 1_000)
    return result


with (
    tempfile.TemporaryDirectory(dir=sys.argv[1] if sys.argv[1:] else None) as folder,
    MemoryStore.open(folder, model=None) as store,
):
    rng = random.Random(56)
    chats = [store.session(scope=f"users/{n}") for n in range(SCOPES)]
    for n in range(ASSERTIONS):
        month = f"20{rng.randint(10, 25)}-{rng.randint(1, 12):02}"
        chats[n % SCOPES].assert_fact(f"user/k{n // SCOPES % KEYS}", rng.randint(0, 9), valid_from=month)
    took: dict[str, list[float]] = {
        name: [] for name in ("record", "known key", "with a turn", "new key", "facts", "fact")
    }
    store.facts("none")
    for n in range(ROUNDS):
        chat = chats[0]
        turn = timed(took["record"], chat.record, "user", f"I moved to city number {n}.")
        timed(took["known key"], chat.assert_fact, f"user/k{n % KEYS}", n)
        timed(took["with a turn"], chat.assert_fact, f"user/k{n % KEYS}", n, because=[turn])
        timed(took["new key"], chat.assert_fact, f"new/key{n}", n)
    store.facts("none")
    for n in range(ROUNDS):
        scope = chats[1 + n % (SCOPES - 1)].scope
        assert len(timed(took["facts"], store.facts, scope=scope)) == KEYS
        timed(took["fact"], store.fact, "user/k1", scope=scope)
    for name, times in took.items():
        ratio = median(times) / median(took["record"])
        print(f"{name:12} median {median(times):.3f} ms, p95 {quantiles(times, n=20)[-1]:.3f} ms, {ratio:.2f} x record")
