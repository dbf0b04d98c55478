"""What commands share: arguments, opening a store, printing the answer, and progress on stderr while they work."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TextIO, TypeVar, cast

import msgspec
import typer

from mnemolog.cli.app import chosen_model
from mnemolog.cli.hints import as_commands, as_text, for_all_commands
from mnemolog.defaults import DEFAULT_MODEL
from mnemolog.domain import errors
from mnemolog.domain.display import Bytes, visible, visible_json
from mnemolog.domain.encoding import to_printable_json
from mnemolog.domain.result import Result, Results
from mnemolog.domain.session import checked_session_id
from mnemolog.domain.values import Clock, When, parse_position_or_time, parse_relative_time
from mnemolog.infra.log.postgres.address import is_url
from mnemolog.infra.runtime.clock import SystemClock
from mnemolog.infra.runtime.files import has_room, is_writable, local_path
from mnemolog.projections.ports import Progress
from mnemolog.session import Session, SessionAt
from mnemolog.store import MemoryStore

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

    from mnemolog.cli.terminal import Terminal


Answer = TypeVar("Answer")


def given_time(given: str, *, clock: Clock | None = None) -> datetime:
    """Return a time, in UTC. Raises `typer.BadParameter`."""
    return _read(parse_relative_time, given, clock or SystemClock())


def position_or_time(value: str) -> int | datetime:
    """Return a position or a time. Raises `typer.BadParameter` for what is neither."""
    return _read(parse_position_or_time, value, SystemClock())


def _read(parse: Callable[..., Answer], given: str, clock: Clock) -> Answer:
    try:
        return parse("time", given, clock=clock)
    except errors.InvalidInput as error:
        raise typer.BadParameter(error.why) from None


Named = Annotated[
    str,
    typer.Argument(metavar="SESSION", help="Id of the session, or the beginning of it."),
]


WHEN: Final = "POSITION|TIME"
TEXT_INDENT: Final = "   │ "
"""Begins every line of a text below the line that says what it is: no text can look like another such line."""

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


Item = TypeVar("Item", bound=Result)
Columns = Mapping[str, Callable[[Item], str]]
"""The names of the columns of a table, and what a result has in each."""


def answer(value: Answer, words: str | Callable[[Answer], object], *, as_json: bool) -> None:
    """Print a result as JSON, or in words: a line, or a function."""
    if as_json:
        print_json(value)
    elif isinstance(words, str):
        out.line(words)
    else:
        words(value)


def note_more(found: Results[Any], cursor: str = "after") -> None:
    """Print to standard error that a limit has left some out, and the option that shows the next ones."""
    if found.next is not None:
        note(f"the limit leaves some out; more: --{cursor} {found.next}")


def print_list(items: Collection[Item], columns: Columns[Item], *, as_json: bool, last: str = "") -> None:
    """Print results as a table with these columns and a `last` line, or as JSON."""

    def show(items: Collection[Item]) -> None:
        print_table(items, columns)
        if last:
            out.line(last, style="dim")

    answer(items, show, as_json=as_json)


def print_table(items: Collection[Item], columns: Columns[Item]) -> None:
    """Print a row for each result; nothing if there are none."""
    if items:
        out.rows(tuple(columns), [[cell(item) for cell in columns.values()] for item in items])


def print_json(answer: Any, *, indent: int = 2) -> None:
    """Print a result as one JSON document at once; on one line with a negative `indent`."""
    document = msgspec.json.format(to_printable_json(answer, enc_hook=as_text), indent=indent).decode()
    sys.stdout.write(visible_json(document) + "\n")
    sys.stdout.flush()


class _Output:
    """Prints results on standard output. Rich is imported with the first line, because JSON does without it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(_terminal(sys.stdout), name)


@lru_cache(1)
def _terminal(_stdout: TextIO) -> Terminal:
    from mnemolog.cli.terminal import Terminal

    return Terminal()


out: Final = cast("Terminal", _Output())
"""The console for results."""


def note(text: str) -> None:
    """Print a note to standard error."""
    print(f"note: {visible(as_commands(text))}", file=sys.stderr)


Phase = Callable[..., Progress]
"""Begins the next phase, by its name and with `of=` what it counts; returns the callback that moves its bar.

With further names: what is counted when the first is done, is the next one.
"""


@contextmanager
def phases(*, at_once: bool = True) -> Iterator[Phase]:
    """Show the phases of the work that the block does: share, count, rate, and the time that remains.

    Until a phase says how much there is to do, and once it has done all that it counts, its bar shows only that it is
    still running: there is no 100 % before the end. A block within such a block shows its phases among the others.
    A `KeyboardInterrupt` gets a note of how far its phase was, unless that is bytes: they say nothing of what is kept.

    - `at_once`: False to show nothing before a phase says that there is more to do
    """
    if _shown:
        yield _shown[0].begin
        return
    _shown.append(_Shown(at_once=at_once))
    try:
        yield _shown[0].begin
    except KeyboardInterrupt as stop:
        if _shown[0].reached:
            stop.add_note(_shown[0].reached)
        raise
    finally:
        if (bars := _shown.pop().bars) is not None:
            bars.stop()


@contextmanager
def bar(*names: str, of: str = "events", at_once: bool = True) -> Iterator[Progress]:
    """Show work of one phase, or of several that follow each other; yield the callback that moves the bar."""
    with phases(at_once=at_once) as phase:
        yield phase(*names, of=of)


class _Shown:
    """The phases of a block, drawn on a terminal."""

    def __init__(self, *, at_once: bool) -> None:
        self._at_once, self.reached = at_once, ""
        self.bars: Bars | None = None

    def begin(self, *names: str, of: str = "events") -> Progress:
        """End the phase before, and show a new one."""
        self.reached, (label, *later) = "", names
        if self._at_once:
            self._draw(label)
        end: tuple[int, int] | None = None

        def move(done: int, total: int) -> None:
            nonlocal label, end
            if end not in (None, (done, total)) and later:
                label = later.pop(0)
                self._draw(label)
            end = None if done < total else (done, total)
            self.reached = "" if isinstance(total, Bytes) else f"{label} stopped at {done:,} of {total:,} {of}"
            if self.bars is None and done < total:
                self._draw(label)
            if (bars := self.bars) is None:
                return
            task, count = bars.tasks[-1], f"{_figure(done, total)}/{_figure(total, total)}"
            if done < total:
                bars.update(task.id, completed=min(done, 0.99 * total), total=total, description=label, count=count)
            else:
                task.total = None  # `update` cannot say that the total is unknown again.
                bars.update(task.id, description=f"{label}, finishing", count=count)

        return move

    def _draw(self, label: str) -> None:
        """Draw a new phase under the others, if there is a terminal."""
        if not sys.stderr.isatty():
            return
        if self.bars is None:
            self.bars = _bars()
            self.bars.start()
        for before in self.bars.tasks[-1:]:
            self.bars.update(before.id, total=1, completed=1, description=before.fields["label"])
        self.bars.add_task(label, total=None, label=label, count="")


_shown: Final[list[_Shown]] = []
"""That of this process, while there is one."""


def _figure(number: float, total: float | None) -> str:
    return f"{number / 1e6:,.1f} MB" if isinstance(total, Bytes) else f"{number:,.0f}"


def _bars() -> Bars:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, Task, TaskProgressColumn, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining
    from rich.text import Text

    class TimeRemaining(Remaining):
        """How much of a phase is done in a second, and the time that remains; nothing once it is done."""

        def render(self, task: Task) -> Text:
            speed = f"{_figure(task.speed, task.total)}/s " if task.speed else ""
            return Text() if task.finished else Text(speed) + super().render(task)

    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=12),
        TaskProgressColumn(),
        TextColumn("{task.fields[count]}"),
        TimeRemaining(),
        console=Console(stderr=True),
        transient=True,
    )
