"""The language of a store: whose word endings the text index removes. Derived from the log."""

from __future__ import annotations

from typing import Final

from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.events import Event, LanguageChosen, RecordedEvent
from mnemolog.domain.limits import quoted
from mnemolog.domain.stream_fold import Past

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
