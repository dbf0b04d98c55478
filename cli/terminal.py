"""The console for results. Stored text cannot steer it, and cannot look like another line of the answer."""

import re
import sys
from collections.abc import Iterable, Sequence
from typing import Final

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from mnemolog.cli.hints import as_commands
from mnemolog.domain.display import cut, visible, visible_lines

Part = str | tuple[str, str]
"""Text, or text with its style."""

MARGIN: Final = "    "
TEXT_MARGIN: Final = "    │ "
"""Begins every line of a text but its first."""

GAP: Final = "  "

_PIPE_WIDTH: Final = 1_000_000  # A pipe has no width: what reads it folds its lines, if it wants to.
_WORD: Final = re.compile(r"\s*\S+\s*")
_WORD_OR_COMMAND: Final = re.compile(r"\s*(`[^`]*`|\S)+\s*")
_WIDTH_MIN: Final = 20
_NUMBERS: Final = ("sessions", "turns", "vectors", "to", "behind", "bytes", "position")
_SHORTENED: Final = ("title", "scope", "agent")
_SHORTENED_MIN: Final = 12
_DROPPED: Final = ((), ("agent",), ("agent", "scope"))


class Terminal:
    """Prints lines, texts and tables to standard output.

    Text is printed as it is, without markup, each part on one line. On a terminal continued lines are indented; in a
    pipe every line is whole.
    """

    def __init__(self) -> None:
        self._piped = not sys.stdout.isatty()
        width = _PIPE_WIDTH if self._piped else None
        self._console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True, width=width)

    def line(self, *parts: Part, style: str = "") -> None:
        """Print parts on one line. Where it is continued, words are not broken."""
        self._print(styled(*parts, style=style), margin=MARGIN, unbroken=_WORD)

    def advice(self, text: str, *, style: str = "") -> None:
        """Print a line with commands in backticks; they are not broken either, so that they can be copied."""
        self._print(styled(text, style=style), margin=MARGIN, unbroken=_WORD_OR_COMMAND)

    def text(self, *before: Part, text: str, full: bool, style: str = "", margin: str = TEXT_MARGIN) -> None:
        """Print a stored text after the parts `before`; `margin` begins each further line of it.

        A long text is cut, unless `full`.
        """
        shown = Text.assemble(styled(*before), (visible_lines(cut(text, full=full)), style))
        self._print(shown, margin=margin, unbroken=None)

    def rows(self, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Print a table, or where the terminal is too narrow for it, each row as a line and its details.

        To make a table fit, titles, scopes and agents are shortened, then agents and scopes left out. Everything
        else is always whole.
        """
        cells = [[visible(cell) for cell in row] for row in rows]
        for dropped in _DROPPED:
            kept = [number for number, name in enumerate(columns) if name not in dropped]
            names, *chosen = ([row[number] for number in kept] for row in (columns, *cells))
            if widths := _widths(names, chosen, self._console.width):
                self._console.print(_row(names, names, widths), style="bold")
                self._console.print(GAP.join("─" * width for width in widths), style="dim")
                for row in chosen:
                    self._console.print(_row(names, row, widths))
                return
        for first, *others in cells:
            details = [f"{name} {cell}" for name, cell in zip(columns[1:], others, strict=True) if cell]
            self.line((first, "bold"))
            self.line(MARGIN, ", ".join(details))

    def _print(self, text: Text, *, margin: str, unbroken: re.Pattern[str] | None) -> None:
        width = self._console.width
        continued = max(_WIDTH_MIN, width - len(margin))
        if self._piped:
            pieces = text.split(allow_blank=True)
        elif unbroken is None:
            pieces = text.wrap(self._console, continued, overflow="fold")
        else:
            pieces = text.divide(_breaks(text.plain, unbroken, first=width, others=continued))
        for number, piece in enumerate(pieces):
            piece.rstrip()
            self._console.print(Text.assemble((margin, "dim"), piece) if number else piece)


def styled(*parts: Part, style: str = "") -> Text:
    """Return parts as one line of text, safe to print."""
    pairs = ((part, "") if isinstance(part, str) else part for part in parts)
    return Text.assemble(*((visible(as_commands(text)), of_part) for text, of_part in pairs), style=style)


def _breaks(text: str, unbroken: re.Pattern[str], *, first: int, others: int) -> list[int]:
    """Return where to continue a line of that width: before each word that does not fit. A word is never broken."""
    found: list[int] = []
    used = 0
    for word in unbroken.finditer(text):
        if used and used + cell_len(word[0].rstrip()) > (others if found else first):
            found.append(word.start())
            used = 0
        used += cell_len(word[0])
    return found


def _widths(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[int] | None:
    """Return a width for each column so that all fit; None if they do not."""
    natural = [max(map(cell_len, column)) for column in zip(columns, *rows, strict=True)]
    excess = sum(natural) + len(GAP) * (len(columns) - 1) - width
    for number, name in enumerate(columns):
        if excess > 0 and name in _SHORTENED:
            smaller = max(min(natural[number], _SHORTENED_MIN), natural[number] - excess)
            excess -= natural[number] - smaller
            natural[number] = smaller
    return None if excess > 0 else natural


def _row(columns: Sequence[str], cells: Sequence[str], widths: Sequence[int]) -> str:
    return GAP.join(
        " " * (width - cell_len(cell)) + cell if name in _NUMBERS else set_cell_size(_shortened(cell, width), width)
        for name, cell, width in zip(columns, cells, widths, strict=True)
    ).rstrip()


def _shortened(cell: str, width: int) -> str:
    return cell if cell_len(cell) <= width else set_cell_size(cell, width - 1).rstrip() + "…"
