"""The events of tokens, with which a server knows its callers. They hold the digest of a token, never the token."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from mnemolog.domain.event import Event, Moment


class TokenCreated(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A token was created. Recorded in the stream of tokens."""

    topic: ClassVar[str] = "token.created.v1"

    id: str
    """The part of the token that is no secret."""
    acts_as: str
    """The actor of what is done with it."""
    verbs: list[str]
    """What it allows: `read`, `record`, `forget`, `admin`."""
    scopes: list[str] = []
    """It allows that within these scopes only; everywhere if there are none."""
    expires_at: Moment | None = None
    """When it ends, in microseconds since the Unix epoch; None for never."""
    digest: Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
    """SHA-256 of the token."""


class TokenRevoked(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A token allows nothing from here on. Recorded in the stream of tokens."""

    topic: ClassVar[str] = "token.revoked.v1"

    id: str


TOKEN_EVENTS: tuple[type[Event], ...] = (TokenCreated, TokenRevoked)
