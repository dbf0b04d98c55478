"""Acts that can be proposed, each with the arguments of the call that does it."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from mnemolog.domain.event import Ordinal
from mnemolog.domain.references import TO_EVENT, TO_SESSION


class AssertFact(
    msgspec.Struct, frozen=True, omit_defaults=True, tag_field="do", tag="assert_fact", forbid_unknown_fields=True
):
    """Say what a key has. It rests on the turns that the proposal names (`because`)."""

    key: str
    value: Any
    """Any JSON value; None from when on nothing is known."""
    valid_from: str | None = None
    """Since when it is true, as ISO 8601 text; None: since `because` was said, else since it was approved."""
    corrects: Annotated[Ordinal, TO_EVENT] | None = None
    """The position of a fact of this key that was wrong."""
    reason: str = ""
    """Why that was wrong."""
    maker: str = ""
    """The program that found it."""


class RetractFact(
    msgspec.Struct, frozen=True, omit_defaults=True, tag_field="do", tag="retract_fact", forbid_unknown_fields=True
):
    """Take back a fact that was wrong."""

    assertions: list[Annotated[Ordinal, TO_EVENT]]
    """The positions of its assertions (`Fact.assertions`)."""
    reason: str = ""


class EndStanding(
    msgspec.Struct, frozen=True, omit_defaults=True, tag_field="do", tag="end_standing", forbid_unknown_fields=True
):
    """End the standing statements of a turn."""

    statement: Annotated[Ordinal, TO_EVENT]
    """The position of the turn."""
    reason: str


class DistrustSources(
    msgspec.Struct, frozen=True, omit_defaults=True, tag_field="do", tag="distrust", forbid_unknown_fields=True
):
    """Show nothing of these sources as an answer: of those at or below the scope of the proposal."""

    positions: list[Annotated[Ordinal, TO_EVENT]] = []
    """The positions of turns."""
    session: list[Annotated[str, TO_SESSION]] = []
    """Ids of sessions."""
    actor: str = ""
    maker: str = ""
    reason: str = ""


class Forget(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="do", tag="forget", forbid_unknown_fields=True):
    """Erase content permanently. What depends on it is found when it is approved."""

    session: list[Annotated[str, TO_SESSION]] = []
    """Ids of sessions."""
    positions: list[Annotated[Ordinal, TO_EVENT]] = []
    """The positions of events."""
    scope: list[str] = []
    """Scopes: all sessions at or below them."""
    questions: bool = True
    """Whether receipts of questions that may quote it go along."""
    reason: str = ""
    despite_minimum: str = ""
    """Why it is forgotten although a minimum age has not passed."""


Act = AssertFact | RetractFact | EndStanding | DistrustSources | Forget
