"""What a store has chosen, derived from its log: the active embedding model, and the language of its text index.

And how long what is said in a scope is kept, and what is not to be forgotten.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from msgspec.structs import replace

from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.events import (
    Event,
    HoldLifted,
    HoldPlaced,
    LanguageChosen,
    ModelActivated,
    RecordedEvent,
    RetentionChosen,
)
from mnemolog.domain.result import Result
from mnemolog.domain.scope import Scope, covers
from mnemolog.domain.stream_fold import Past
from mnemolog.domain.values import By, Position, UtcTime, checked_by, micros_of, parse_age, quoted, to_datetime

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


class RetentionRule(Result, frozen=True, kw_only=True):
    """How long what is said in a scope, and below it, is kept."""

    scope: Scope
    max_age: str | None
    """The age at which turns are forgotten, such as `180d`; None for what the scope above says."""
    min_age: str | None
    """The age, counted from the recording, before which nothing is forgotten; None for what the scopes above say."""
    by: By
    """What the maximum age is counted from."""
    keep_facts: bool
    """Whether facts that hold stay when the turns go that they rest on."""
    position: Position
    """Of its event."""
    at: UtcTime
    actor: str
    """Who set it; empty if none was given."""


class Hold(Result, frozen=True, kw_only=True):
    """A scope of which nothing is forgotten until this is lifted."""

    called_by = "position"

    position: Position
    """Of its event."""
    scope: Scope
    reason: str
    at: UtcTime
    actor: str
    """Who placed it; empty if none was given."""


class Retention(Result, frozen=True, kw_only=True):
    """The rules and the holds of a store at a moment."""

    rules: tuple[RetentionRule, ...] = ()
    holds: tuple[Hold, ...] = ()
    """Those that are not lifted, in the order in which they were placed."""

    def rule_of(self, scope: Scope) -> RetentionRule | None:
        """Return the rule whose maximum age counts for a scope: its own, else that of the nearest scope above."""
        found = [rule for rule in self._above(scope) if rule.max_age]
        return max(found, key=lambda rule: len(rule.scope), default=None)

    def min_age_of(self, scope: Scope) -> int:
        """Return how many microseconds what is recorded in a scope is kept at least: the longest of all above."""
        return max((micros_of(rule.min_age) for rule in self._above(scope)), default=0)

    def holds_on(self, scopes: Collection[Scope], below: Collection[Scope] = ()) -> list[Hold]:
        """Return the holds on any of these scopes or above them, and those on scopes that are in any of `below`."""
        return [
            hold
            for hold in self.holds
            if any(covers(hold.scope, scope) for scope in (*scopes, *below))
            or any(covers(scope, hold.scope) for scope in below)
        ]

    def _above(self, scope: Scope) -> Iterator[RetentionRule]:
        return (rule for rule in self.rules if covers(rule.scope, scope))


NO_RETENTION: Final = Retention()


def evolve_retention(state: Retention | None, recorded: RecordedEvent, _past: Past[Retention]) -> Retention | None:
    """Return the rules and holds after an event of the stream. A rule without ages takes that of its scope away."""
    known, event = state or NO_RETENTION, recorded.event
    place: dict[str, Any] = {
        "position": recorded.position,
        "at": to_datetime(recorded.recorded_at),
        "actor": event.actor,
    }
    match event:
        case RetentionChosen():
            rules = [rule for rule in known.rules if rule.scope != event.scope]
            if event.max_age or event.min_age:
                said = {name: getattr(event, name) for name in ("max_age", "min_age", "by", "keep_facts")}
                rules.append(RetentionRule(scope=Scope(event.scope), **said, **place))
            return replace(known, rules=tuple(rules))
        case HoldPlaced():
            hold = Hold(scope=Scope(event.scope), reason=event.reason, **place)
            return replace(known, holds=(*known.holds, hold))
        case HoldLifted():
            return replace(known, holds=tuple(hold for hold in known.holds if hold.position != event.hold))
    return known


def chosen_rule(scope: Scope, *, max_age: str | None, min_age: str | None, by: By, keep_facts: bool) -> RetentionChosen:
    """Decide how long what is said in a scope is kept. Raises `InvalidInput`."""
    most, least = parse_age("max_age", max_age), parse_age("min_age", min_age)
    if most is not None and micros_of(least) > micros_of(most):
        raise InvalidInput("min_age", f"{least} is more than the maximum age, {most}")
    return RetentionChosen(scope=scope, max_age=most, min_age=least, by=checked_by(by), keep_facts=keep_facts)
