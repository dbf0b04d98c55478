"""The tokens of a store: who may do what through a server. Derived from the log.

A token is `mnemolog_`, its id, `_` and a secret of 256 random bits. The log has its SHA-256. So much cannot be guessed,
so no slow hash is needed.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final, Literal, get_args

import msgspec
from immutables import Map

from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.events import RecordedEvent, TokenCreated, TokenRevoked
from mnemolog.domain.result import Result
from mnemolog.domain.scope import ROOT, Scope, parse_scopes
from mnemolog.domain.stream_fold import Past
from mnemolog.domain.values import Micros, UtcTime, checked_label, quoted, to_datetime, within_calendar

TOKENS_STREAM: Final = "tokens"
"""The stream of tokens. Such events in other streams are ignored."""
PREFIX: Final = "mnemolog_"
ID_BYTES: Final = 6
SECRET_BYTES: Final = 32

VALID_FOR: Final = timedelta(days=90)
"""How long a token is valid, unless another time is given."""
REPLACED_FOR: Final = timedelta(hours=1)
"""How long a token is still valid once it was replaced, unless another time is given."""
ENDS_SOON: Final = timedelta(days=14)
"""How long before the end of a token it is said that its holder needs another one."""

Verb = Literal["read", "record", "propose", "approve", "forget", "admin", "metrics"]
"""What a token may do: read; append turns, values and sessions; propose what another person approves; approve and
decline, whatever that does; erase; all that concerns the whole store; read the measurements of a server, which hold no
content."""
VERBS: Final[tuple[Verb, ...]] = get_args(Verb)


class Token(Result, frozen=True, kw_only=True):
    """A token, without its secret, which only its holder has."""

    called_by = "id"

    id: str
    """The part that is no secret."""
    actor: str
    """The name that is recorded in every event that its holder appends."""
    verbs: tuple[Verb, ...]
    scopes: tuple[Scope, ...]
    """Where its holder may do so; everywhere if empty."""
    created_at: UtcTime
    created_by: str
    """The actor who created it; empty if none was given."""
    expires_at: UtcTime | None
    revoked_at: UtcTime | None = None
    revoked_by: str = ""
    """Who revoked or replaced it."""
    replaced_at: UtcTime | None = None
    """When another one was made in its place (`AdminService.rotate_token`). It is valid until `expires_at`."""
    last_used_at: UtcTime | None = None
    """When a server last saw it, to about a minute; None if it was never used, or its folder does not say."""

    def is_valid(self, now: datetime) -> bool:
        """Return whether it allows anything at a time."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


class CreatedToken(Result, frozen=True, kw_only=True):
    """A new token, with its secret. It is shown once: the store keeps only a digest."""

    secret: str
    """What the holder sends: `Authorization: Bearer` and this. It is not in the `repr`."""
    token: Token
    replaces: Token | None = None
    """The token that it was made in the place of."""

    def _shown(self) -> Iterable[str]:
        return self.token._shown()


class KnownToken(msgspec.Struct, frozen=True, gc=False):
    """A token with what its secret is checked against."""

    token: Token
    digest: bytes


def ends_soon(token: Token, now: datetime) -> bool:
    """Return whether a token is valid at a time, and not for much longer: its holder needs another one."""
    ends = token.expires_at if token.replaced_at is None else None
    return token.is_valid(now) and ends is not None and ends < now + ENDS_SOON


TokensState = Map[str, KnownToken]
"""The tokens by id, in no order."""


def evolve_tokens(state: TokensState | None, recorded: RecordedEvent, _past: Past[TokensState]) -> TokensState | None:
    """Return the tokens after an event of the stream. An id that is taken stays with the first token."""
    known: TokensState = Map() if state is None else state
    match recorded.event:
        case TokenCreated() as created if created.id not in known:
            token = Token(
                id=created.id,
                actor=created.acts_as,
                verbs=tuple(verb for verb in VERBS if verb in created.verbs),
                scopes=tuple(map(Scope, created.scopes)),
                created_at=to_datetime(recorded.recorded_at),
                created_by=created.actor,
                expires_at=None if created.expires_at is None else to_datetime(within_calendar(created.expires_at)),
            )
            return known.set(created.id, KnownToken(token, created.digest))
        case TokenRevoked(id=id) as revoked if (found := known.get(id)) is not None and not found.token.revoked_at:
            ended = _ended(found.token, revoked, to_datetime(recorded.recorded_at))
            return known.set(id, KnownToken(ended, found.digest))
    return known


def _ended(token: Token, revoked: TokenRevoked, at: datetime) -> Token:
    if revoked.at is None:
        return msgspec.structs.replace(token, revoked_at=at, revoked_by=revoked.actor)
    end = to_datetime(within_calendar(revoked.at))
    end = min(end, token.expires_at or end)
    return msgspec.structs.replace(token, replaced_at=at, revoked_by=revoked.actor, expires_at=end)


def new_token(
    id: str, secret: str, *, actor: str, verbs: Sequence[str], scopes: Sequence[str], expires_at: Micros | None
) -> TokenCreated:
    """Decide to create a token. Raises `InvalidInput`, `LimitExceeded`."""
    return TokenCreated(
        id=id,
        acts_as=checked_label("actor", actor),
        verbs=_checked_verbs(verbs),
        scopes=_checked_scopes(scopes),
        expires_at=expires_at,
        digest=digest_of_secret(secret),
    )


def _checked_verbs(verbs: Sequence[str]) -> list[str]:
    if isinstance(verbs, str) or not verbs:
        raise InvalidInput("verbs", f"expected a list with any of {', '.join(VERBS)}, got {quoted(verbs)}")
    for verb in verbs:
        if verb not in VERBS:
            raise InvalidInput("verbs", f"{quoted(verb)} is none of {', '.join(VERBS)}")
    return [verb for verb in VERBS if verb in verbs]


def _checked_scopes(scopes: Sequence[str]) -> list[str]:
    """Return scopes without those below another one. Refuse the root: an empty variable must not mean everything."""
    if isinstance(scopes, str):
        raise InvalidInput("scopes", f"expected a list of scopes, got {quoted(scopes)}")
    if ROOT in scopes:
        raise InvalidInput("scopes", "one is empty; leave out `scopes` for a token that is valid everywhere")
    return [*parse_scopes(scopes)] if scopes else []


def digest_of_secret(secret: str) -> bytes:
    """Return what the log has of a token."""
    return sha256(secret.encode(errors="surrogatepass")).digest()


def id_of(given: str) -> str:
    """Return the id in a token, or an id itself; empty if it is neither."""
    return given.removeprefix(PREFIX).partition("_")[0]
