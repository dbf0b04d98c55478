"""Idempotency keys of turns that have no id in their file."""

from __future__ import annotations

Places = dict[str, dict[str, dict[str, int]]]
"""By session and kind of turn: how many turns of a moment there were, the moment of the last turn last."""


class KeyMaker:
    """Makes keys from the places of turns, so that the same turn has the same key in every run.

    A key holds no text and no digest of one: whoever has all files of a store cannot confirm a guess with it. `places`
    has the `latest` of an earlier run, to resume after it. Needs about a hundred bytes of memory per moment.
    """

    def __init__(self, places: Places | None = None) -> None:
        self._places = {} if places is None else places

    def key(self, session: str, kind: str, said_at: int | None = None) -> str:
        """Return the key of the next turn of a kind, such as `user@1767607200000000/1`: it ends with its number."""
        place = kind if said_at is None else f"{kind}@{said_at}"
        moments = self._places.setdefault(session, {}).setdefault(kind, {})
        number = moments[place] = moments.pop(place, 0) + 1
        return f"{place}/{number}"

    def latest(self) -> Places:
        """Return the counts of the last moment of each session and kind."""
        return {
            session: {kind: dict([next(reversed(moments.items()))]) for kind, moments in kinds.items()}
            for session, kinds in self._places.items()
        }
