"""Check the copy of a log before it gets its name: a backup, a restored store, an import with its keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from mnemolog.domain import errors
from mnemolog.domain.chain import Kind
from mnemolog.domain.display import Bytes
from mnemolog.infra.keys.keyring import KeysEngine
from mnemolog.infra.log.event_log import EventLog
from mnemolog.infra.log.open import open_log
from mnemolog.infra.runtime.clock import SystemClock
from mnemolog.projections.history.verify import Verification, Witness, verify
from mnemolog.projections.ports import Progress, tell

_AS_RECORDED: Final = frozenset({Kind.UNDECODABLE, Kind.UNFIT})
"""Findings about what was recorded, not about the copy: the digests prove that it is copied as it was recorded."""


def counting(progress: Progress | None, total: int) -> Callable[[int], None]:
    """Return what is called with the size of each piece that is copied: `progress` gets the sum, `total` at most."""
    done = 0

    def moved(size: int) -> None:
        nonlocal done
        done = min(done + size, total)
        tell(progress, done, Bytes(total))

    return moved


def verify_copy(
    log: EventLog,
    *,
    what: str,
    outcome: str,
    contents: bool,
    witnesses: Iterable[Witness] = (),
    progress: Progress | None = None,
) -> Verification:
    """Check every page, digest and witness of a log, and with `contents` open all content.

    Messages name the copy by `what`, and end with the `outcome`: what was not done. Raises `LogDamaged` for a log that
    is not whole, and where content does not open.
    """
    try:
        found = verify(log, witnesses=witnesses, contents=contents, progress=progress)
    except errors.KeysMissing as error:
        if error.wrapped:
            raise
        raise errors.LogDamaged(f"the keys do not open the content of {what}: {error.why}; {outcome}") from error
    damage = [finding for finding in found.findings if finding.kind not in _AS_RECORDED]
    if damage:
        text = f"{what} does not verify: {damage[0].kind.value}: {damage[0].detail}"
        more = f"; and {len(damage) - 1} more" if len(damage) > 1 else ""
        raise errors.LogDamaged(f"{text}{more}; {outcome}", position=damage[0].position)
    return found


@contextmanager
def opened_copy(folder: Path, *, what: str, outcome: str, keys: KeysEngine | None = None) -> Iterator[EventLog]:
    """Give the log in a folder that no other process has open. Raises `LogDamaged` if there is none to open.

    `keys` open its content; they are closed with it.
    """
    try:
        log = open_log(folder, clock=SystemClock(), create=False, keys=keys, notes=False)
    except (errors.NotAStore, errors.StoreNotFound, errors.FormatTooNew) as error:
        raise errors.LogDamaged(f"{what} cannot be opened as a log; {outcome}") from error
    with closing(log):
        yield log
