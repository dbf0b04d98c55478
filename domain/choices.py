"""What a store has chosen, derived from its log: the active embedding model, and the language of its text index."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.events import Event, LanguageChosen, ModelActivated, RecordedEvent
from mnemolog.domain.limits import quoted
from mnemolog.domain.position import Position
from mnemolog.domain.result import Result
from mnemolog.domain.stream_fold import Past

MODELS_STREAM: Final = "models"
"""The stream of activations. Activations in other streams are ignored."""

FINGERPRINT_DIGITS: Final = 64
SHORT_DIGITS: Final = 8
"""How many digits of a fingerprint are shown, and the fewest that identify a model."""


class Activation(Result, frozen=True, kw_only=True):
    """A model that answers from a position on, until another one is activated."""

    position: Position
    fingerprint: str
    model: str
    dimension: int
    retain_every_n_turns: int = 1
    """As in `ModelActivated`."""

    def __str__(self) -> str:
        return f"{self.model} ({short(self.fingerprint)})"


def short(fingerprint: str) -> str:
    """Return the beginning of a fingerprint, for people."""
    return fingerprint[:SHORT_DIGITS]


def activation_of(recorded: RecordedEvent) -> Activation | None:
    """Return the activation of an event, None for an event of another kind."""
    event = recorded.event
    if not isinstance(event, ModelActivated):
        return None
    return Activation(
        position=recorded.position,
        fingerprint=event.fingerprint,
        model=event.model,
        dimension=event.dimension,
        retain_every_n_turns=event.retain_every_n_turns,
    )


def evolve_active(active: Activation | None, recorded: RecordedEvent, _past: Past[Activation]) -> Activation | None:
    """Return the model that is active after an event of the stream; events of other kinds change nothing."""
    return activation_of(recorded) or active


def evolve_names(
    names: Mapping[str, str] | None, recorded: RecordedEvent, _past: Past[Mapping[str, str]]
) -> Mapping[str, str]:
    """Return the name of every model that was activated, by fingerprint, after an event of the stream."""
    activation = activation_of(recorded)
    return {**(names or {}), **({} if activation is None else {activation.fingerprint: activation.model})}


def activate(active: Activation | None, wanted: ModelActivated) -> list[Event]:
    """Decide to activate a model; no event if it is active already."""
    return [] if active is not None and active.fingerprint == wanted.fingerprint else [wanted]


LANGUAGE_STREAM: Final = "language"
"""The stream of the choices. Choices in other streams are ignored."""

LANGUAGES: Final = {
    "en": "english",
    "de": "german",
    "fr": "french",
    "es": "spanish",
    "pt": "portuguese",
    "it": "italian",
}
"""The languages by their codes (ISO 639-1)."""
DEFAULT_LANGUAGE: Final = "en"


def parse_language(given: str) -> str:
    """Return the code of a language, from its code or its English name. Raises `InvalidInput`."""
    word = given.strip().lower() if isinstance(given, str) else ""
    for code, name in LANGUAGES.items():
        if word in (code, name):
            return code
    known = ", ".join(f"{code} ({name})" for code, name in LANGUAGES.items())
    raise InvalidInput("language", f"{quoted(given)} is none of {known}")


def choice_of(recorded: RecordedEvent) -> str | None:
    """Return the language that an event chooses, None for another event."""
    event = recorded.event
    return event.language if isinstance(event, LanguageChosen) and recorded.stream == LANGUAGE_STREAM else None


def evolve_language(language: str | None, recorded: RecordedEvent, _past: Past[str]) -> str | None:
    """Return the language after an event of the stream."""
    return choice_of(recorded) or language


def choose(language: str | None, wanted: str) -> list[Event]:
    """Decide to choose a language; no event if it is chosen already."""
    return [] if (language or DEFAULT_LANGUAGE) == wanted else [LanguageChosen(language=wanted)]
