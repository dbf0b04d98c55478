"""Read the parameters of a page's URL, or the fields of a form."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, TypeVar

from starlette.datastructures import QueryParams
from starlette.requests import Request

from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.values import ORIGIN, Position, checked_whole, quoted
from mnemolog.server.http.serialization import fields_of

FORM_FIELDS_MAX: Final = 1_000
POSITIONS_MAX: Final = 10_000
"""How many positions one page takes."""

Number = TypeVar("Number", int, float)
_DIGITS: Final = re.compile(r"[0-9]{1,15}")
_RANGE: Final = re.compile(r"([0-9]{1,15})(?:\s*-\s*([0-9]{1,15}))?")


def form_of(body: bytes) -> QueryParams:
    """Return the fields of a form. Raises `InvalidInput` for one with files, or with too many fields."""
    return QueryParams(fields_of("form", body, most=FORM_FIELDS_MAX, unit="fields"))


def text(fields: QueryParams, name: str, default: str = "") -> str:
    """Return a parameter without the white space around it."""
    return str(fields.get(name, default)).strip() or default


def several(fields: QueryParams, name: str, *, apart: str = r"[,\n]") -> tuple[str, ...]:
    """Return the values of a parameter that is given several times, or with `apart` between its values."""
    values = (part.strip() for value in fields.getlist(name) for part in re.split(apart, str(value)))
    return tuple(dict.fromkeys(value for value in values if value))


def position(fields: QueryParams, name: str) -> Position | None:
    """Return a position; None if the parameter is missing or empty. Raises `InvalidInput`."""
    value = text(fields, name)
    if value and not _DIGITS.fullmatch(value):
        raise InvalidInput(name, f"{quoted(value)} is not a position such as 1200")
    return Position(int(value)) if value else None


def position_in_path(request: Request) -> Position:
    """Return the position that the path of a page names. Raises `InvalidInput`."""
    return position(QueryParams(request.path_params), "position") or ORIGIN


def whole(fields: QueryParams, name: str, default: int, *, least: int = 0, most: int) -> int:
    """Return a whole number. Raises `InvalidInput`."""
    return checked_whole(name, _number(fields, name, default, int, "a whole number"), least=least, most=most)


def decimal(fields: QueryParams, name: str) -> float | None:
    """Return a number; None if there is none. Raises `InvalidInput`."""
    return _number(fields, name, 0.0, float, "a number") if text(fields, name) else None


def positions(fields: QueryParams, name: str) -> tuple[int, ...]:
    """Return the positions of a list such as `12, 40-45`. Raises `InvalidInput`."""
    found = tuple(dict.fromkeys(position for part in several(fields, name) for position in _range(name, part)))
    return _bounded(name, found)


def _number(fields: QueryParams, name: str, default: Number, kind: type[Number], what: str) -> Number:
    value = text(fields, name)
    try:
        return kind(value) if value else default
    except ValueError:
        raise InvalidInput(name, f"{value!r} is not {what}") from None


def _range(name: str, part: str) -> Iterator[int]:
    found = _RANGE.fullmatch(part)
    if found is None:
        raise InvalidInput(name, f"{part!r} is neither a position nor a range of positions such as 40-45")
    first, last = int(found[1]), int(found[2] or found[1])
    _bounded(name, range(first, last + 1))
    yield from range(first, last + 1)


def _bounded(name: str, found: range | tuple[int, ...]) -> tuple[int, ...]:
    if len(found) > POSITIONS_MAX:
        raise InvalidInput(name, f"{len(found):,} positions at once; take at most {POSITIONS_MAX:,}")
    return tuple(found)
