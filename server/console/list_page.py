"""One page of a list, with the ways to the pages before and after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from mnemolog.domain.position import Position
from mnemolog.domain.result import Result

Row = TypeVar("Row", bound=Result)


class ListPage(Result, Generic[Row], frozen=True, kw_only=True):
    """A page of a list that is ordered by positions. The template `parts.html` shows the ways as `pager`."""

    items: tuple[Row, ...] = ()
    earlier: Position | None = None
    """Pass it as `before` for the page with what is earlier; None if there is nothing."""
    later: Position | None = None
    """Pass it as `after` for the page with what is later; None if there is nothing, or the list is read backwards."""

    @classmethod
    def of(
        cls,
        rows: Sequence[Row],
        place: Callable[[Row], Position],
        *,
        before: Position | None,
        after: Position | None,
        most: int,
    ) -> ListPage[Row]:
        """Return a page of up to `most` rows: the first ones after `after`, or else the last ones before `before`.

        `rows` are those, in the order of their positions, and one more if there is one.
        """
        more, forward = len(rows) > most, after is not None
        items = rows[:most] if forward else rows[-most:]
        if not items:
            return cls()
        has_earlier, has_later = (True, more) if forward else (more, before is not None)
        return cls(
            items=tuple(items),
            earlier=place(items[0]) if has_earlier else None,
            later=place(items[-1]) if has_later else None,
        )
