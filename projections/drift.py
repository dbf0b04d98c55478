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
    "quarantines these views, with the turns in them, and builds new ones."
)
_TABLES_LOST: Final = (
    "Run `mnemolog verify DIR` and find out what happened to log.db; the next opening, or "
    "`mnemolog doctor DIR --fix`, quarantines these tables and builds new ones."
)
_TABLES_ANEW: Final = (
    "Nothing to do: the next opening, or `mnemolog doctor DIR --fix`, quarantines them and builds new ones."
)
_TABLES_READ: Final = "Nothing to do: the next read brings them up to date."
_WHY: Final = "Find out what holds the file and who may read it, then run `mnemolog status DIR` again."

TABLE: Final[dict[Drift, Meaning]] = {
    Drift.CURRENT: Meaning("Up to date with the log.", _NOTHING, _NOTHING, _NOTHING, _NOTHING),
    Drift.BEHIND: Meaning(
        "The log has newer events. Nothing is missed: recalls include them, or say how far they reach.",
        "`mnemolog rebuild DIR vectors --model MODEL` brings them up to date at once, from the cache where possible.",
        "Nothing to do: every read brings them up to date; `mnemolog rebuild DIR views` does it at once.",
        tables=_TABLES_READ,
    ),
    Drift.AHEAD: Meaning(
        "It was built from events that the log no longer has: the log has lost history.",
        _LOST,
        _VIEWS_LOST,
        tables=_TABLES_LOST,
    ),
    Drift.OTHER_LOG: Meaning(
        "It was built from another log and belongs to another store.",
        "Move it to its own store, or run `mnemolog doctor DIR --fix` to quarantine it.",
        "Nothing to do: the next read, or `mnemolog doctor DIR --fix`, quarantines them and builds new ones.",
        tables=_TABLES_ANEW,
    ),
    Drift.DIVERGED: Meaning(
        "The log has another history up to the same position: it was rewritten, or restored and continued.",
        _LOST,
        _VIEWS_LOST,
        tables=_TABLES_LOST,
    ),
    Drift.DAMAGED: Meaning(
        "Its bytes are not those that were written. It is not used.",
        "`mnemolog doctor DIR --fix --model MODEL` quarantines the damaged segments and rebuilds them from the cache.",
        "`mnemolog doctor DIR --fix` rebuilds them from the log.",
        "`mnemolog doctor DIR --fix` quarantines the damaged file, or deletes the damaged rows.",
        _TABLES_ANEW,
    ),
    Drift.MISSING: Meaning(
        "It does not exist.",
        "`mnemolog rebuild DIR vectors --model MODEL` builds them, from the cache where possible.",
        "Nothing to do: the next read builds them; `mnemolog rebuild DIR views` does it at once.",
        "Nothing to do: it is created when it is first needed.",
        _TABLES_READ,
    ),
    Drift.OTHER_MODEL: Meaning(
        "It is of a model that is not the active one.",
        "Nothing to do: it is kept in case that model is activated again.",
    ),
    Drift.REPLACED: Meaning(
        "A newer generation of the same model answers in its place.",
        "Nothing needs it: `mnemolog doctor DIR --fix` quarantines it.",
    ),
    Drift.UNREADABLE: Meaning(
        "It cannot be read now: it is locked, or the permission to read it is missing.", "", _WHY, _WHY, _WHY
    ),
}


def action(kind: Kind, state: Drift, *, model: str = "") -> str:
    """Return what is to be done about a projection in a state, in one sentence with the command in it.

    DIR stands for the folder of the store. So does MODEL for the model, where `model` is not known.
    """
    meaning = TABLE[state]
    of_kind = {"vectors": meaning.vectors, "views": meaning.views, "cache": meaning.cache, "tables": meaning.tables}
    text = of_kind[kind]
    return text.replace("MODEL", shlex.quote(model)) if model else text
