"""How far a projection can be from its log, in one table: the words, what they mean, what is to be done.

Decided from tags alone (manifests, names, sizes of files): never from file times, never by counting.
`docs/operations.md` shows the same table, and a test holds them against each other.
"""

from __future__ import annotations

import shlex
from enum import StrEnum
from typing import Final, Literal, NamedTuple

Kind = Literal["vectors", "views", "cache", "tables"]


class Drift(StrEnum):
    """What a projection is to the log at hand."""

    CURRENT = "current"
    BEHIND = "behind"
    AHEAD = "ahead"
    OTHER_LOG = "other-log"
    DIVERGED = "diverged"
    DAMAGED = "damaged"
    MISSING = "missing"
    OTHER_MODEL = "other-model"
    REPLACED = "replaced"
    UNREADABLE = "unreadable"


class Meaning(NamedTuple):
    """What a state means, and what is to be done, for each kind of projection that can be in it."""

    means: str
    vectors: str = ""
    views: str = ""
    cache: str = ""
    tables: str = ""


LOST_HISTORY: Final = frozenset({Drift.AHEAD, Drift.DIVERGED})
"""States that speak against the log, not against the projection."""

UNCOVERED: Final = LOST_HISTORY | {Drift.OTHER_LOG}
"""States of what this log cannot tell again. It is never used, and never renamed unless an operator says so."""

_NOTHING: Final = "Nothing to do."
_LOST: Final = (
    "Run `mnemolog verify DIR`, find out what happened to log.db and restore the newest copy of it; "
    "to give up what the log has lost, run `mnemolog doctor DIR --fix`."
)
_VIEWS_LOST: Final = (
    "Run `mnemolog verify DIR` and find out what happened to log.db; the next read, or `mnemolog doctor DIR --fix`, "
    "sets these views aside, with the turns in them, and makes new ones."
)
_TABLES_LOST: Final = (
    "Run `mnemolog verify DIR` and find out what happened to log.db; who opens them next, or "
    "`mnemolog doctor DIR --fix`, sets these tables aside and makes new ones."
)
_TABLES_ANEW: Final = (
    "Nothing to do: who opens them next, or `mnemolog doctor DIR --fix`, sets them aside and makes new ones."
)
_TABLES_READ: Final = "Nothing to do: who asks them next brings them to the head."
_WHY: Final = "See what holds the file and who may read it, then ask again with `mnemolog status DIR`."

TABLE: Final[dict[Drift, Meaning]] = {
    Drift.CURRENT: Meaning("It holds all that the log tells.", _NOTHING, _NOTHING, _NOTHING, _NOTHING),
    Drift.BEHIND: Meaning(
        "The log tells more. Nothing is missed: recalls take in what is new, or say how far they saw.",
        "`mnemolog rebuild DIR vectors --model MODEL` brings them to the head at once, from the cache where it can.",
        "Nothing to do: every read brings them to the head; `mnemolog rebuild DIR views` does it at once.",
        tables=_TABLES_READ,
    ),
    Drift.AHEAD: Meaning(
        "It was made of events that the log does not have any more: the log has lost history.",
        _LOST,
        _VIEWS_LOST,
        tables=_TABLES_LOST,
    ),
    Drift.OTHER_LOG: Meaning(
        "It was made of another log and belongs to another store.",
        "Carry it to the store it is from, or run `mnemolog doctor DIR --fix` to set it aside.",
        "Nothing to do: the next read, or `mnemolog doctor DIR --fix`, sets them aside and makes new ones.",
        tables=_TABLES_ANEW,
    ),
    Drift.DIVERGED: Meaning(
        "The log tells another history up to the same offset: it was rewritten, or restored and continued.",
        _LOST,
        _VIEWS_LOST,
        tables=_TABLES_LOST,
    ),
    Drift.DAMAGED: Meaning(
        "Bytes are not those that were written. It is not used.",
        "`mnemolog doctor DIR --fix --model MODEL` sets the damaged segments aside and makes them anew from the cache.",
        "`mnemolog doctor DIR --fix` makes them anew from the log.",
        "`mnemolog doctor DIR --fix` sets the damaged file aside, or deletes the damaged rows.",
        _TABLES_ANEW,
    ),
    Drift.MISSING: Meaning(
        "There is none.",
        "`mnemolog rebuild DIR vectors --model MODEL` makes them, from the cache where it can.",
        "Nothing to do: the next read makes them; `mnemolog rebuild DIR views` does it at once.",
        "Nothing to do: it is made when it is first needed.",
        _TABLES_READ,
    ),
    Drift.OTHER_MODEL: Meaning(
        "It is of a model that is not the active one.",
        "Nothing to do: it is kept for going back to that model.",
    ),
    Drift.REPLACED: Meaning(
        "A newer generation of the same model answers in its place.",
        "Nothing needs it: `mnemolog doctor DIR --fix` sets it aside.",
    ),
    Drift.UNREADABLE: Meaning("It cannot be read now: it is locked, or not ours to read.", "", _WHY, _WHY, _WHY),
}


def action(kind: Kind, state: Drift, *, model: str = "") -> str:
    """Return what is to be done about a projection in a state, in one sentence with the command in it.

    DIR stands for the folder of the store. So does MODEL for the model, where `model` is not known.
    """
    meaning = TABLE[state]
    of_kind = {"vectors": meaning.vectors, "views": meaning.views, "cache": meaning.cache, "tables": meaning.tables}
    text = of_kind[kind]
    return text.replace("MODEL", shlex.quote(model)) if model else text
