"""Progress on stderr, shown only on a terminal: a bar for each phase of the work."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mnemolog.projections.ports import Progress

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

Phase = Callable[[str], Progress]
"""Begins the next phase, by its name; returns the callback that moves its bar."""


@contextmanager
def phases() -> Iterator[Phase]:
    """Show the phases of the work that the block does, each with its percentage and the time that remains.

    Until a phase says how much there is to do, and once it has done all that it counts, its bar shows only that it is
    still running: there is no 100 % before the end.
    """
    if not sys.stderr.isatty():
        yield lambda _: lambda _done, _total: None
        return
    with _bars() as bars:

        def begin(label: str) -> Progress:
            """End the phase before, and show a new one."""
            for before in bars.tasks[-1:]:
                bars.update(before.id, total=1, completed=1, description=before.fields["label"])
            bars.add_task(label, total=None, label=label)
            task = bars.tasks[-1]

            def move(done: int, total: int) -> None:
                if done < total:
                    bars.update(task.id, completed=min(done, 0.99 * total), total=total, description=label)
                else:
                    task.total = None  # `update` cannot say that the total is unknown again.
                    bars.update(task.id, description=f"{label}, finishing")

            return move

        yield begin


@contextmanager
def bar(label: str) -> Iterator[Progress]:
    """Show work of one phase; yield the callback that moves the bar."""
    with phases() as phase:
        yield phase(label)


def _bars() -> Bars:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, Task, TaskProgressColumn, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining
    from rich.text import Text

    class TimeRemaining(Remaining):
        """How much of a phase is done in a second, and the time that remains; nothing once it is done."""

        def render(self, task: Task) -> Text:
            speed = f"{task.speed:,.0f}/s " if task.speed else ""
            return Text() if task.finished else Text(speed) + super().render(task)

    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TaskProgressColumn(),
        TimeRemaining(),
        console=Console(stderr=True),
        transient=True,
    )
