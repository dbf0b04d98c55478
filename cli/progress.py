"""Progress on stderr, shown only on a terminal: a bar for each phase of the work. After Ctrl-C, how far it was."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from mnemolog.domain.display import Bytes
from mnemolog.projections.ports import Progress

if TYPE_CHECKING:
    from rich.progress import Progress as Bars


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
