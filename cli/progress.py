"""Progress on stderr, shown only on a terminal: a bar for each phase of the work, and the model being loaded."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from mnemolog.domain.display import visible
from mnemolog.domain.structured_log import ROOT
from mnemolog.projections.ports import Progress

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

Phase = Callable[[str], Progress]
"""Begins the next phase, by its name; returns the callback that moves its bar."""

_MODEL_LOG: Final = f"{ROOT}.model"


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
        shown = _Phases(bars)
        with shown.listening():
            yield shown.begin


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


class _Phases(logging.Handler):
    """Moves the bars. While a model is being loaded, the label of the phase says so."""

    def __init__(self, bars: Bars) -> None:
        super().__init__()
        self._bars, self._label = bars, ""

    def begin(self, label: str) -> Progress:
        """End the phase before, and show a new one."""
        bars = self._bars
        for before in bars.tasks[-1:]:
            bars.update(before.id, total=1, completed=1, description=self._label)
        self._label = label
        bars.add_task(label, total=None)
        task = bars.tasks[-1]

        def move(done: int, total: int) -> None:
            if done < total:
                bars.update(task.id, completed=min(done, 0.99 * total), total=total, description=label)
            else:
                task.total = None  # `update` cannot say that the total is unknown again.
                bars.update(task.id, description=f"{label}, finishing")

        return move

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Receive what is logged about models."""
        log = logging.getLogger(_MODEL_LOG)
        level = log.level
        log.addHandler(self)
        log.setLevel(min(log.getEffectiveLevel(), logging.INFO))
        try:
            yield
        finally:
            log.removeHandler(self)
            log.setLevel(level)

    def emit(self, record: logging.LogRecord) -> None:
        """Change the label of the phase that runs."""
        event, facts = getattr(record, "event", ""), getattr(record, "facts", {})
        running = [task.id for task in self._bars.tasks if not task.finished]
        for task in running[-1:]:
            loading = event == "model.loading"
            label = f"loading the model {visible(str(facts.get('model', '')))}" if loading else self._label
            self._bars.update(task, description=label)
