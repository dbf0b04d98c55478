"""Create, list and revoke the tokens of a store."""

import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from math import inf
from pathlib import Path
from time import monotonic
from typing import Final

import msgspec

from mnemolog.domain import errors
from mnemolog.domain.encoding import to_json
from mnemolog.domain.events import TokenRevoked
from mnemolog.domain.request import as_it_is, current_request_key
from mnemolog.domain.stream_fold import FoldedState
from mnemolog.domain.tokens import (
    ID_BYTES,
    PREFIX,
    SECRET_BYTES,
    TOKENS_STREAM,
    CreatedToken,
    Token,
    TokensState,
    evolve_tokens,
    id_of,
    new_token,
)
from mnemolog.domain.values import Clock, Micros, Position, quoted, to_datetime, to_micros
from mnemolog.infra.log.event_log import EventLog
from mnemolog.infra.log.transaction import Transaction
from mnemolog.infra.runtime.files import make_folder, read_file, write_unsynced


def revoke(tx: Transaction, ids: Sequence[str]) -> list[str]:
    """Revoke tokens. Return the ids of those that are known and were not revoked before."""
    state = tx.fold(TOKENS_STREAM, evolve_tokens) or _NONE
    doomed = [id for id in ids if (known := state.get(id)) is not None and known.token.revoked_at is None]
    for id in doomed:
        tx.append(TOKENS_STREAM, TokenRevoked(id=id))
    return doomed


def tokens_of(log: EventLog) -> list[Token]:
    """Return the tokens of a log in the order of their creation, also those that are no longer valid."""
    state = log.fold(TOKENS_STREAM, evolve_tokens).state or _NONE
    return sorted((known.token for known in state.values()), key=lambda token: (token.created_at, token.id))


_NONE: Final[TokensState] = TokensState()
SAVED_EVERY_S: Final = 60.0
_USES: Final = msgspec.json.Decoder(dict[str, datetime])


class Tokens:
    """The tokens of one log. Safe for many threads; sees what other processes have created and revoked."""

    def __init__(self, log: EventLog, clock: Clock, *, uses: Path) -> None:
        """`uses` is a file that notes when tokens were last used; it can be deleted at any time."""
        self._log = log
        self._clock = clock
        self._file = uses
        self._uses: dict[str, datetime] = {}
        """Those that are not in the file yet."""
        self._saved = -inf
        self._folded: FoldedState[TokensState] | None = None

    def all(self) -> list[Token]:
        """Return all tokens in the order of their creation, also those that are no longer valid."""
        used = self._saved_uses() | self._uses
        tokens = (msgspec.structs.replace(i.token, last_used_at=used.get(id)) for id, i in self.known().items())
        return sorted(tokens, key=lambda token: (token.created_at, token.id))

    def note_use(self, id: str, now: datetime) -> None:
        """Note that a token was used. `save_uses` writes it down."""
        self._uses[id] = now

    @property
    def uses_are_due(self) -> bool:
        """Whether there are uses to write down, and it was not done within the last minute."""
        return bool(self._uses) and monotonic() - self._saved >= SAVED_EVERY_S

    def save_uses(self) -> None:
        """Write the uses of tokens down, if there are any; what cannot be written is kept for the next time."""
        if not self._uses:
            return
        self._saved, noted, self._uses = monotonic(), self._uses, {}
        try:
            make_folder(self._file.parent)
            write_unsynced(self._file, to_json(self._saved_uses() | noted))
        except OSError:
            self._uses = noted | self._uses

    def _saved_uses(self) -> dict[str, datetime]:
        try:
            return _USES.decode(read_file(self._file))
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return {}

    def create(
        self,
        actor: str,
        *,
        verbs: Sequence[str],
        scopes: Sequence[str],
        expires_in: timedelta | None,
        ends: TokenRevoked | None = None,
    ) -> CreatedToken:
        """See `AdminService.create_token`. `ends` is recorded with it: the end of the token that it replaces."""
        id = secrets.token_hex(ID_BYTES)
        secret = f"{PREFIX}{id}_{secrets.token_urlsafe(SECRET_BYTES)}"
        expires_at = None if expires_in is None else self._end_of("expires_in", expires_in)
        created = new_token(id, secret, actor=actor, verbs=verbs, scopes=scopes, expires_at=expires_at)
        key = current_request_key()

        def create(tx: Transaction) -> None:
            if key is not None and (taken := tx.position_of(TOKENS_STREAM, key)) is not None:
                raise errors.DuplicateKey(stream=TOKENS_STREAM, key=key, position=Position(taken)).saying(
                    f"a token was created with the key {key!r}, at position {taken}; its secret cannot be shown again",
                    hint="revoke that token, and create another one with a new key",
                )
            tx.append(TOKENS_STREAM, created, key=key)
            if ends is not None:
                former = (tx.fold(TOKENS_STREAM, evolve_tokens) or _NONE)[ends.id].token
                if former.replaced_at or not former.is_valid(to_datetime(self._clock.now())):
                    why = f"the token {ends.id} has expired, or was revoked or replaced; the list of tokens says which"
                    raise errors.InvalidInput("token", why)
                tx.append(TOKENS_STREAM, ends)

        self._log.appends.transact(create)
        known = self.known()
        return CreatedToken(
            secret=secret, token=known[id].token, replaces=None if ends is None else known[ends.id].token
        )

    def rotate(self, token: str, *, revoke_old_after: timedelta) -> CreatedToken:
        """See `AdminService.rotate_token`."""
        old = self.named(token)
        at = self._end_of("revoke_old_after", revoke_old_after) if revoke_old_after else None
        return self.create(
            old.actor,
            verbs=old.verbs,
            scopes=old.scopes,
            expires_in=None if old.expires_at is None else old.expires_at - old.created_at,
            ends=TokenRevoked(id=old.id, at=at),
        )

    def named(self, token: str) -> Token:
        """Return the token with an id, or else the only valid one of an actor. Raises `InvalidInput`."""
        known = self.known()
        id = id_of(token)
        now = to_datetime(self._clock.now())
        if (found := known.get(id)) is not None:
            return found.token
        tokens = (item.token for item in known.values())
        held = [item for item in tokens if item.actor == token and item.is_valid(now) and item.replaced_at is None]
        if len(held) == 1:
            return held[0]
        shown = "that was given" if token.startswith(PREFIX) else quoted(id)
        why = f"no token has the id {shown}" if not held else f"{token} has {len(held)} valid tokens"
        raise errors.InvalidInput("token", f"{why}; the list of tokens has their ids")

    def revoke(self, token: str) -> Token:
        """See `AdminService.revoke_token`."""
        id = self.named(token).id
        self._log.appends.transact(partial(revoke, ids=[id]))
        return self.known()[id].token

    @as_it_is()
    def known(self) -> TokensState:
        """Return all tokens by id, as of now.

        One indexed query shows whether a token was created or revoked since the last call, by any process.
        """
        folded = self._folded
        if folded is None or self._log.version(TOKENS_STREAM) != folded.version:
            folded = self._folded = self._log.fold(TOKENS_STREAM, evolve_tokens)
        return _NONE if folded.state is None else folded.state

    def _end_of(self, field: str, after: timedelta) -> Micros:
        if after <= timedelta(0):
            raise errors.InvalidInput(field, "a token cannot end before now")
        try:
            return to_micros(field, to_datetime(self._clock.now()) + after)
        except OverflowError as error:
            raise errors.InvalidInput(field, "ends after the year 9999; leave it out") from error
