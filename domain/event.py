"""The base of every event, a frozen struct that is stored under a topic which we choose, and the types of its fields.

Decoding checks these types, so an event that was read has no number or time that cannot be used.

References are fields of events and results that name an event or another session, marked in their type. A caller who
may not see what a field refers to gets the answer without it, and no answer shows an event that is not the one that was
recorded (`VisibleEvents.admitted`).
"""

from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from typing import Annotated, Any, ClassVar, Final, get_args, get_origin, get_type_hints

import msgspec

from mnemolog.domain.values import CALENDAR_FIRST, CALENDAR_LAST, INTEGER_MAX, Position

Moment = Annotated[int, msgspec.Meta(ge=CALENDAR_FIRST, le=CALENDAR_LAST)]
"""Microseconds since the Unix epoch, within the years 1 to 9999."""
Count = Annotated[int, msgspec.Meta(ge=0, le=INTEGER_MAX)]
"""A number that may be 0; also a position before which there may be nothing."""
Ordinal = Annotated[int, msgspec.Meta(ge=1, le=INTEGER_MAX)]
"""A number that counts from 1, such as the position of an event or the version of a stream."""
Age = Annotated[str, msgspec.Meta(pattern=r"^\d{1,6}[mhdw]$")]
"""A duration such as `90m`, `12h`, `30d` or `8w`."""
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A fact. Appended once, never changed.

    It cannot be part of a reference cycle, so the garbage collector does not track it (`gc=False`): a read of the log
    creates very many of them.
    """

    topic: ClassVar[str]

    actor: str = ""
    """Who appended it (`mnemolog.acting_as`); empty if none was given."""
    redacted: dict[str, Count] | None = None
    """How many secrets were replaced in it before it was appended, by kind (`mnemolog.domain.redaction`)."""


class RequestedEvent(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A write to the memory of a session. It is encrypted as a whole, so it may hold parts of its content."""

    request: str = ""
    """Digest of the request over HTTP that its key is of: another request with that key is refused. Empty for none."""


STREAMS_KEPT: Final = 4_096


def named_streams(prefix: str) -> tuple[Callable[[str], str], Callable[[str], str | None]]:
    """Return two functions for streams that are named by a prefix and a name.

    The first returns the stream of a name. The second returns the name of a stream, None for a stream of another kind.
    """

    def stream_of(name: str) -> str:
        return prefix + name

    @lru_cache(STREAMS_KEPT)
    def name_of(stream: str) -> str | None:
        return stream.removeprefix(prefix) if stream.startswith(prefix) else None

    return stream_of, name_of


TO_EVENT: Final = msgspec.Meta(extra={"refers to": "event"})
"""Marks the position of another event: `Annotated[Position, TO_EVENT]`."""
TO_SESSION: Final = msgspec.Meta(extra={"refers to": "session"})
"""Marks the id of another session: `Annotated[str, TO_SESSION]`."""
SHOWN: Final = msgspec.Meta(extra={"shows": "event"})
ShownAt = Annotated[Position, SHOWN]
"""The position of an event whose content the struct shows, or several: `tuple[ShownAt, ...]`."""
READ: Final = msgspec.Meta(extra={"read from": "log"})
"""Marks what was made of events alone, which are compared with their digests when they are read."""


def shown_at(value: Any, found: set[int]) -> set[int]:
    """Add the positions of the events whose content a value shows, in everything that it holds. Return them all."""
    if isinstance(value, msgspec.Struct):
        for name, is_position in _shown_by(type(value)):
            held = getattr(value, name)
            if is_position and held:
                found.update(held if isinstance(held, tuple) else (held,))
            elif held:
                shown_at(held, found)
    elif isinstance(value, list | tuple | dict):
        for item in value.values() if isinstance(value, dict) else value:
            shown_at(item, found)
    return found


def without(value: Any, is_left_out: Callable[[msgspec.Meta, Any], object]) -> Any:
    """Return a value without some references, in everything that it holds: fields are None then, and lists lack them.

    `is_left_out` is called with the mark of each reference, and with what it refers to. Lists are changed in place.
    """
    if isinstance(value, list):
        value[:] = [without(item, is_left_out) for item in value]
    elif isinstance(value, tuple):
        items = [without(item, is_left_out) for item in value]
        return value if items == list(value) else getattr(value, "_make", tuple)(items)
    elif isinstance(value, msgspec.Struct):
        changed = dict[str, Any]()
        for name, mark in references_of(type(value)).items():
            given = left = getattr(value, name)
            if mark is None:
                left = without(given, is_left_out)
            elif isinstance(given, list | tuple):
                left = type(given)(item for item in given if not is_left_out(mark, item))
            elif given is not None and is_left_out(mark, given):
                left = None
            if left != given:
                changed[name] = left
        return msgspec.structs.replace(value, **changed) if changed else value
    return value


@cache
def _shown_by(kind: type[msgspec.Struct]) -> list[tuple[str, bool]]:
    """Return the fields of a struct that hold structs, and with True those of positions that it shows."""
    hints = get_type_hints(kind, include_extras=True)
    parts = {name: list(_parts(hints[name])) for name in kind.__struct_fields__}
    held = {name: of for name, of in parts.items() if READ not in of}
    return [(name, SHOWN in of) for name, of in held.items() if SHOWN in of or any(map(_is_struct, of))]


@cache
def references_of(kind: type[msgspec.Struct]) -> dict[str, msgspec.Meta | None]:
    """Return the marks of the fields of a struct that refer to something, and None for those that hold structs."""
    hints, found = get_type_hints(kind, include_extras=True), dict[str, msgspec.Meta | None]()
    for name in kind.__struct_fields__:
        parts = list(_parts(hints[name]))
        marks = [mark for mark in (TO_EVENT, TO_SESSION) if mark in parts]
        if marks or any(map(_is_struct, parts)):
            found[name] = marks[0] if marks else None
    return found


def _is_struct(part: Any) -> bool:
    return isinstance(part, type) and issubclass(part, msgspec.Struct)


def _parts(hint: Any) -> Iterator[Any]:
    yield hint
    for part in (*get_args(hint), *(hint.__metadata__ if get_origin(hint) is Annotated else ())):
        yield from _parts(part)
