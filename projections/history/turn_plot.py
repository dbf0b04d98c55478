"""A plot of turns over time, a row for each session. Needs matplotlib, which mnemolog does not install."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from mnemolog.domain.clock import local_time
from mnemolog.domain.display import named, one_line
from mnemolog.domain.role import Role
from mnemolog.projections.read_models import Turn

SESSIONS_MAX: Final = 40
"""Rows of a plot: the sessions with the most turns."""
LABEL_CHARACTERS_MAX: Final = 40
_FIRST: Final = datetime(1000, 1, 1, tzinfo=UTC)
_LAST: Final = datetime(9000, 1, 1, tzinfo=UTC)
_COLOURS: Final = {Role.USER: "tab:blue", Role.ASSISTANT: "tab:orange", Role.SYSTEM: "tab:gray", Role.TOOL: "tab:green"}


def plot_turns(turns: Sequence[Turn], titles: dict[str, str], *, axes: Any = None) -> Any:
    """Draw turns by the time they were said, coloured by role, and return the matplotlib `Axes`.

    `titles` are those of the sessions, by id. Draws into `axes`, or into a new figure. Raises `ImportError` without
    matplotlib.
    """
    axes = _new_axes() if axes is None else axes
    most = dict(Counter(turn.session for turn in turns).most_common(SESSIONS_MAX))
    shown = [session for session in titles if session in most]
    rows = {session: row for row, session in enumerate(shown)}
    for role, colour in _COLOURS.items():
        drawn = [turn for turn in turns if turn.role is role and turn.session in rows]
        if drawn:
            times, places = [_drawable(turn.said_at) for turn in drawn], [rows[turn.session] for turn in drawn]
            axes.scatter(times, places, s=12, color=colour, label=role.value)
    labels = [one_line(named(item, titles[item]), characters_max=LABEL_CHARACTERS_MAX) for item in shown]
    # A dollar sign would begin a formula.
    axes.set_yticks(range(len(shown)), [label.replace("$", r"\$") for label in labels])
    axes.invert_yaxis()
    axes.set_xlabel("said at")
    left_out = len({turn.session for turn in turns}) - len(shown)
    axes.set_title("turns over time" + (f" ({left_out:,} more sessions)" if left_out else ""))
    if shown:
        axes.legend()
    axes.figure.autofmt_xdate()
    return axes


def _drawable(moment: datetime) -> datetime:
    """Return a time in local time; for one at an end of the calendar, where matplotlib has no room, the nearest."""
    return local_time(min(max(moment, _FIRST), _LAST))


def _new_axes() -> Any:
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError("a plot needs matplotlib, which is not installed: pip install matplotlib") from error
    return pyplot.subplots(figsize=(9, 4), layout="constrained")[1]
