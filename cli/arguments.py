"""Arguments that several commands share: sessions, positions, times, dry runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer

from mnemolog.cli.app import chosen_model
from mnemolog.cli.hints import for_all_commands
from mnemolog.cli.output import note
from mnemolog.cli.progress import bar
from mnemolog.defaults import DEFAULT_MODEL
from mnemolog.domain import errors
from mnemolog.domain.position import Clock, When, parse_position_or_time, parse_relative_time
from mnemolog.domain.session import checked_session_id
from mnemolog.infra.log.postgres.address import is_url
from mnemolog.infra.runtime.clock import SystemClock
from mnemolog.infra.runtime.files import has_room, is_writable, local_path
from mnemolog.session import Session, SessionAt
from mnemolog.store import MemoryStore

Read = TypeVar("Read")


def given_time(given: str, *, clock: Clock | None = None) -> datetime:
    """Return a time, in UTC. Raises `typer.BadParameter`."""
    return _read(parse_relative_time, given, clock or SystemClock())


def position_or_time(value: str) -> int | datetime:
    """Return a position or a time. Raises `typer.BadParameter` for what is neither."""
    return _read(parse_position_or_time, value, SystemClock())


def _read(parse: Callable[..., Read], given: str, clock: Clock) -> Read:
    try:
        return parse("time", given, clock=clock)
    except errors.InvalidInput as error:
        raise typer.BadParameter(error.why) from None


Named = Annotated[
    str,
    typer.Argument(metavar="SESSION", help="Id of the session, or the beginning of it."),
]


WHEN: Final = "POSITION|TIME"

At = Annotated[
    Any,
    typer.Option(
        "--at", metavar=WHEN, parser=position_or_time, help="Show the state at this position or time of recording."
    ),
]
AsOf = Annotated[
    Any,
    typer.Option(
        "--as-of", metavar=WHEN, parser=position_or_time, help="Answer as of this position or time of recording."
    ),
]
AfterPosition = Annotated[
    Any,
    typer.Option("--after", metavar=WHEN, parser=position_or_time, help="Only turns recorded after it."),
]
BeforePosition = Annotated[
    Any,
    typer.Option("--before", metavar=WHEN, parser=position_or_time, help="Only turns recorded before it."),
]
Full = Annotated[bool, typer.Option("--full", help="Print long texts whole.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would be done; write nothing.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do it. Without it nothing is changed.")]


def session_called(store: MemoryStore, given: str) -> Session:
    """Return the session with that id, or else the only one whose id begins like that.

    Raises `UnknownSession`, and `InvalidInput` if several ids begin like that, or if no id can.
    """
    checked_session_id(given)
    if (found := store.find_session(given)) is not None:
        return found  # By id: reads only the log, no projection.
    ids = [item.session for item in store.sessions() if item.session.startswith(given)]
    if len(ids) > 1:
        some = ", ".join(ids[:5]) + (", ..." if len(ids) > 5 else "")
        raise errors.InvalidInput("session", f"{len(ids)} ids begin with {given!r}: {some}; write more of it")
    if not ids:
        raise store.parts.visible.unknown(given)
    return store.session(ids[0])


def standard_input(field: str) -> str:
    """Return all of standard input. Raises `InvalidInput` if it is not UTF-8 text."""
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise errors.InvalidInput(field, f"standard input is no UTF-8 text: {error}") from error


def as_of(session: Session, when: When | None) -> Session | SessionAt:
    """Return a session at a position or time, or its present state for None."""
    return session if when is None else session.at(when)


def open_store(path: str | Path, *, model: str | None = None, **how: Any) -> MemoryStore:
    """Open a store; read-only where its folder or its full disk cannot be written. `how` as in `MemoryStore.open`."""
    how.setdefault("witness", for_all_commands("witness"))
    if not is_url(path):
        path = local_path("path", path)
        how["read_only"] = path.is_dir() and not (is_writable(path) and has_room(path))
        if how["read_only"] and not has_room(path):
            note(f"the disk of {path} is full: free some space to write; until then it is only read")
    store = MemoryStore.open(path, model=model, **how)
    store.parts.projections.showing = partial(bar, "indexing", at_once=False)
    return store


def store_with_model(folder: Path, model: str, *, background: bool = False) -> MemoryStore:
    """Open a store for a command that needs vectors. Without `background` no projector thread is started.

    Say so on stderr if another model than the one named is active, and answers.
    """
    store = open_store(folder, model=chosen_model(model), create=False, background=background)
    models = store.parts.projections.models
    active = None if model == DEFAULT_MODEL or models.own is None else models.active()
    if active is not None and models.opened(models.own).fingerprint != active.fingerprint:
        note(f"{active.model} is active and answers; --model {model} has no effect")
    return store


@contextmanager
def opened_session(folder: Path, given: str) -> Iterator[Session]:
    """Open a store to read or change one of its sessions."""
    with open_store(folder, create=False) as store:
        yield session_called(store, given)
