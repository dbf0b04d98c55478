"""Beginning again where others wrote to a session between the look at it and the write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from mnemolog.domain.errors import WrongExpectedVersion

ATTEMPTS_MAX: Final = 100

_T = TypeVar("_T")


def retry_on_conflict(attempt: Callable[[], _T]) -> _T:
    """Return what `attempt` returns, made again as long as it raises `WrongExpectedVersion`; the last one is raised."""
    for _ in range(ATTEMPTS_MAX - 1):
        try:
            return attempt()
        except WrongExpectedVersion:
            continue
    return attempt()
