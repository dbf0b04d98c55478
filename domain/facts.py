"""Facts with two times: the rule that decides what a key has, and the checks of keys and times.

An assertion is recorded at a position, and true from a moment on. The value at a time v, known at a position p, is that
of the latest `valid_from` <= v among the assertions at or before p that were not retracted by then; ties by position.
There is no end: an interval ends where the next begins, and `None` is the value of what has ended.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from mnemolog.domain.encoding import canonical, to_json
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.event import named_streams
from mnemolog.domain.events import FactAsserted, RecordedEvent
from mnemolog.domain.values import (
    VALUE_BYTES_MAX,
    Micros,
    Position,
    Time,
    checked_json,
    checked_label,
    checked_position,
    parse_time,
)

facts_stream, facts_scope = named_streams("facts/")
"""The stream that holds the facts of a scope, and the scope whose facts a stream holds."""
FILES: Final = "memories/"
"""Keys below it are files of a model's own. They are in no context, and listed only where a pattern begins with it."""
PROPOSALS: Final = "proposals/"
"""What the names of streams of proposals begin with, before their scope."""
proposals_stream, _proposals_scope = named_streams(PROPOSALS)
"""The stream that holds the proposals of a scope, and the scope whose proposals a stream holds."""
BECAUSE_MAX: Final = 100
"""Turns that one fact may rest on."""
NOTHING: Final = canonical(None)
"""The value of a key that has ended, as bytes."""
_MONTH: Final = re.compile(r"\d{4}-\d{2}\Z")


def stream_scope(stream: str) -> str | None:
    """Return the scope whose facts or proposals a stream holds, or None for a stream of another kind."""
    scope = _proposals_scope(stream)
    return facts_scope(stream) if scope is None else scope


class Assertion(NamedTuple):
    """An assertion of a fact, with its place. The rule looks at the first five fields."""

    position: Position
    valid_from: int
    """Microseconds since the Unix epoch."""
    value: bytes
    """In canonical form, so that equal values have equal bytes."""
    checked_at: int
    """When the newest of its evidence was said, else when it was recorded."""
    retracted: Position | None = None
    """The position of its first retraction."""
    reason: str = ""
    scope: str = ""
    key: str = ""
    version: int = 0
    recorded_at: int = 0
    assumed: int = 0
    because: str = "[]"
    """As JSON."""
    maker: str = ""
    session: str | None = None
    actor: str = ""
    proposal: Position | None = None
    proposed_by: str = ""


class Belief(NamedTuple):
    """What a key has, and the assertions that say so."""

    decides: Assertion
    since: int
    """The first moment from which on assertion after assertion gives this value."""
    checked_at: int
    """When it was last said or confirmed."""
    positions: tuple[Position, ...]
    """Of these assertions, the one that decides first."""


def assertion_of(recorded: RecordedEvent) -> Assertion | None:
    """Return the assertion that an event is; None for another event."""
    event, scope = recorded.event, facts_scope(recorded.stream)
    if scope is None or not isinstance(event, FactAsserted):
        return None
    said_at = recorded.recorded_at if event.said_at is None else event.said_at
    return Assertion(
        position=recorded.position,
        valid_from=said_at if event.valid_from is None else event.valid_from,
        value=canonical(event.value),
        checked_at=said_at,
        scope=scope,
        key=event.key,
        version=recorded.version,
        recorded_at=recorded.recorded_at,
        assumed=event.valid_from is None,
        because=to_json(event.because).decode(),
        maker=event.maker,
        session=event.session,
        actor=event.actor,
        proposal=None if event.proposal is None else Position(event.proposal),
        proposed_by=event.proposed_by,
    )


def latest_first(assertions: Iterable[Assertion], *, valid_at: int | None, upto: int) -> list[Assertion]:
    """Return the assertions of a key that count at a time, or at all, as known at a position; the latest first."""
    live = (
        item
        for item in assertions
        if item.position <= upto
        and (item.retracted is None or item.retracted > upto)
        and (valid_at is None or item.valid_from <= valid_at)
    )
    return sorted(live, key=lambda item: (item.valid_from, item.position), reverse=True)


def believed(ordered: Iterable[Assertion]) -> Belief | None:
    """Return what a key has, given `latest_first`; None without an assertion. Reads no further than the value goes."""
    found: list[Assertion] = []
    for item in ordered:
        if found and item.value != found[0].value:
            if item.valid_from == found[-1].valid_from:
                continue  # Its interval is empty: an assertion recorded later begins at the same moment.
            break
        found.append(item)
    if not found:
        return None
    checked_at = max(item.checked_at for item in found)
    return Belief(found[0], found[-1].valid_from, checked_at, tuple(item.position for item in found))


def new_fact(
    *,
    key: str,
    value: Any,
    valid_from: Time | None = None,
    because: Sequence[int] = (),
    maker: str = "",
    session: str | None = None,
) -> FactAsserted:
    """Return the event that gives a key a value, checked. Raises `InvalidInput`, `LimitExceeded`."""
    if len(because) > BECAUSE_MAX:
        raise InvalidInput("because", f"{len(because)} turns; a fact rests on {BECAUSE_MAX} at most: name the best")
    return FactAsserted(
        key=checked_fact_key(key),
        value=checked_json("value", value, bytes_max=VALUE_BYTES_MAX),
        valid_from=None if valid_from is None else parse_valid_time("valid_from", valid_from),
        because=sorted({checked_position("because", position) for position in because}),
        maker=checked_label("maker", maker) if maker else "",
        session=session,
    )


def checked_fact_key(key: str) -> str:
    """Return `key` if it can name a fact: a path such as `user/city`, of 512 bytes at most. Raises `InvalidInput`."""
    checked_label("key", key)
    if not all(part.strip() == part and part not in ("", ".", "..") for part in key.split("/")):
        raise InvalidInput("key", f"{key!r} is not a path; write it like 'user/city'")
    if not frozenset("*?[]").isdisjoint(key):
        raise InvalidInput("key", f"{key!r} has a wildcard, which only a pattern may have; write it like 'user/city'")
    return key


def parse_valid_time(field: str, value: Time) -> Micros:
    """Return a time at which something is true. Raises `InvalidInput`.

    As `parse_time`; a month is its first moment.
    """
    if isinstance(value, str) and _MONTH.match(value.strip()):
        value = f"{value.strip()}-01"
    return parse_time(field, value)
