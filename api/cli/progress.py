"""Progress bars on stderr, shown only on a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mnemolog.projections.ports import Progress


@contextmanager
def bar(label: str) -> Iterator[Progress]:
    """Show a bar with rate and remaining time while the block runs; yield the callback that updates it."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(show_speed=True))
    with Progress(
        *columns, TimeRemainingColumn(), console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task(label, total=None)

        def move(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        yield move
