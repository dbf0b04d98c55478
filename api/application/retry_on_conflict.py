"""Retry a decision if another writer appended to the stream between the read and the write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from mnemolog.domain.errors import WrongExpectedVersion

ATTEMPTS_MAX: Final = 100

_T = TypeVar("_T")


def retry_on_conflict(attempt: Callable[[], _T]) -> _T:
    """Return what `attempt` returns. `WrongExpectedVersion` is retried; that of the last attempt is raised."""
    for _ in range(ATTEMPTS_MAX - 1):
        try:
            return attempt()
        except WrongExpectedVersion:
            continue
    return attempt()
