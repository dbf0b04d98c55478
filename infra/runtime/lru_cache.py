"""A bounded cache that evicts the least recently used entry."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from mnemolog.infra.runtime import fork_guard

Key = TypeVar("Key")
Value = TypeVar("Value")


class LruCache(Generic[Key, Value]):
    """Keeps values up to a total of `size_max`, by the `size_of` each: one by default. Safe for many threads.

    A single value larger than `size_max` is not kept.
    """

    def __init__(self, size_max: int, *, size_of: Callable[[Value], int] = lambda _: 1) -> None:
        self._size_max, self._size_of = size_max, size_of
        self._values: OrderedDict[Key, Value] = OrderedDict()
        self._size = 0
        self._lock = fork_guard.lock()

    def __contains__(self, key: Key) -> bool:
        return key in self._values

    def get(self, key: Key) -> Value | None:
        """Return a value, which counts as used now; None if it is not kept."""
        with self._lock:
            found = self._values.get(key)
            if found is not None:
                self._values.move_to_end(key)
            return found

    def put(self, key: Key, value: Value) -> list[Value]:
        """Keep a value, which counts as used now, in place of the one of that key. Return those that are dropped."""
        with self._lock:
            dropped = [] if (replaced := self._values.pop(key, None)) is None else [replaced]
            self._values[key] = value
            self._size += self._size_of(value) - sum(map(self._size_of, dropped))
            while self._size > self._size_max:
                dropped.append(self._values.popitem(last=False)[1])
                self._size -= self._size_of(dropped[-1])
            return dropped

    def clear(self) -> None:
        """Keep nothing."""
        with self._lock:
            self._values.clear()
            self._size = 0
