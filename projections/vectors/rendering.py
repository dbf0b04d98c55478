"""Render a turn as the text to embed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from mnemolog.domain.events import RecordedEvent, TurnRecorded
from mnemolog.domain.position import Position

RECIPE: Final = "text/2"
"""Part of the model fingerprint. Change it whenever `render` changes, because every vector changes then."""


class RenderedTurn(NamedTuple):
    """A turn and the text that is embedded for it."""

    position: Position
    text: str


def render(turn: TurnRecorded) -> str:
    """Return the text to embed. Speakers' names are left out: they add little meaning, and the ranking scores them."""
    return turn.text


def rendered_turns(events: Iterable[RecordedEvent]) -> list[RenderedTurn]:
    """Return the turns among these events, in order."""
    return [RenderedTurn(item.position, render(item.event)) for item in events if isinstance(item.event, TurnRecorded)]
