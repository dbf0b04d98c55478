"""The base of all results: plain values, JSON, one line in a terminal."""

from collections.abc import Iterable
from datetime import datetime
from enum import Enum
from typing import Any, ClassVar, Final, TypeVar

import msgspec

from mnemolog.domain.display import dated
from mnemolog.domain.encoding import to_printable_json
from mnemolog.domain.errors import InvalidInput, as_plain
from mnemolog.domain.values import Position, UtcTime

LINE_CHARACTERS_MAX: Final = 79
"""The length of a `repr`, in characters."""
TEXT_CHARACTERS_MAX: Final = 40
"""The length of a text within a `repr`, in characters."""

Item = TypeVar("Item")


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """A result of the store."""

    called_by: ClassVar[str] = ""
    """The field that names it: calls that take the name take the result, too (`name_of`)."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain Python values, nested results as dictionaries. Times stay `datetime`."""
        fields: dict[str, Any] = msgspec.to_builtins(self, builtin_types=(datetime, bytes), enc_hook=as_plain)
        return fields

    def to_json(self, indent: int | None = None) -> str:
        """Return the fields as JSON: on one line, or indented by so many spaces. Times are ISO 8601 in UTC."""
        return as_json(self, indent)

    def __repr__(self) -> str:
        line = f"{type(self).__name__}("
        for number, part in enumerate(self._shown()):
            longer = f"{line}, {part}" if number else line + part
            if len(longer) >= LINE_CHARACTERS_MAX - 3:
                return f"{line}, …)" if number else f"{longer[: LINE_CHARACTERS_MAX - 2]}…)"
            line = longer
        return f"{line})"

    def _shown(self) -> Iterable[str]:
        """Yield the parts of the `repr`, the most important one first."""
        for field in msgspec.structs.fields(self):
            value = getattr(self, field.name)
            if value not in (None, "", (), {}):
                yield f"{field.name}={brief(value)}"


def name_of(given: Any, kind: type[Result], field: str) -> Any:
    """Return the name of a result, which is given by that or itself. Raises `InvalidInput` for anything else."""
    name = getattr(given, kind.called_by) if isinstance(given, kind) else given
    if not isinstance(name, int if kind.called_by == "position" else str):
        raise InvalidInput(field, f"expected a {kind.__name__} or its {kind.called_by}, got {type(name).__name__}")
    return name


class Stale(Result, frozen=True, kw_only=True):
    """Why an answer may lack the newest events: it comes from projections alone, since the log does not answer."""

    position: Position
    """The projections have read the log up to here."""
    recorded_at: UtcTime | None
    """When the newest turn in them was recorded; None if there is none."""
    why: str
    """What happened when the log was asked."""

    def __str__(self) -> str:
        newest = "" if self.recorded_at is None else f", whose newest turn was recorded at {dated(self.recorded_at)}"
        return f"as of position {self.position}{newest}: {self.why}"


class Results(list[Item]):
    """A list of results."""

    stale: Stale | None = None
    """Set if the log does not answer: then they come from projections alone (docs/postgres.md)."""
    next: Position | None = None
    """Set if the `limit` left some out: pass it as `after` for those, as `before` with `newest_first` or `last`."""

    def __repr__(self) -> str:
        shown = [repr(item) for item in self[:3]]
        more = f", … {len(self) - 3} more" if len(self) > 3 else ""
        return f"[{', '.join(shown)}{more}]"

    def to_json(self, indent: int | None = None) -> str:
        """Return the results as a JSON array: on one line, or indented by so many spaces."""
        return as_json(self, indent)


def as_json(value: Any, indent: int | None) -> str:
    """Return results as JSON, on one line or indented."""
    encoded = to_printable_json(value, enc_hook=as_plain)
    return (encoded if indent is None else msgspec.json.format(encoded, indent=indent)).decode()


def brief(value: Any) -> str:
    """Return a value in a few characters."""
    match value:
        case str() if not isinstance(value, Enum):
            folded = " ".join(value.split())  # Not `one_line`: `repr` escapes what would steer a terminal.
            return repr(folded if len(folded) <= TEXT_CHARACTERS_MAX else f"{folded[: TEXT_CHARACTERS_MAX - 1]}…")
        case datetime():
            return dated(value)
        case Enum():
            return str(value.value)
        case dict() | list() | tuple():
            return f"<{len(value)}>"
        case _:
            return repr(value)
