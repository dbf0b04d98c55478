"""Render a turn as the text to embed."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from mnemolog.domain.events import RecordedEvent, TurnRecorded
from mnemolog.domain.message import spoken_text
from mnemolog.domain.values import Position

RECIPE: Final = "text/2"
"""Part of the model fingerprint. Change it whenever `rendered_turns` changes, because every vector changes then."""


class RenderedTurn(NamedTuple):
    """A turn and the text that is embedded for it."""

    position: Position
    text: str


def rendered_turns(events: Iterable[RecordedEvent]) -> list[RenderedTurn]:
    """Return the turns with a text among these events, in order. One that only calls tools gets no vector.

    Speakers' names are left out: they add little meaning, and the ranking scores them.
    """
    return [
        RenderedTurn(item.position, text)
        for item in events
        if isinstance(item.event, TurnRecorded) and (text := spoken_text(item.event.text, item.event.tool_calls))
    ]
