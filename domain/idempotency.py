"""The idempotency key of a request, which every write made for it takes if it has none of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_KEY: ContextVar[str | None] = ContextVar("mnemolog_request_key", default=None)


def current_request_key() -> str | None:
    """Return the key of the request that is being answered; None outside of one, and for one without a key."""
    return _KEY.get()


@contextmanager
def request_key(key: str | None) -> Iterator[None]:
    """Give the writes of the block a key, so that a retry of the block with the same key writes nothing.

    The key is stored with the event. A block makes one call that writes.
    """
    token = _KEY.set(key)
    try:
        yield
    finally:
        _KEY.reset(token)
