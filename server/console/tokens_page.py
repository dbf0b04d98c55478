"""Tokens: who may use this server. Made and revoked here only if the console may write."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final, Literal

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from mnemolog.adapters.support.store_access import clock_of, read
from mnemolog.domain.position import to_datetime
from mnemolog.domain.result import Result
from mnemolog.domain.tokens import VALID_FOR, VERBS, Token, Verb
from mnemolog.server.console.moment import AsOf
from mnemolog.server.console.page import action, page, redirect
from mnemolog.server.console.parameters import several, text, whole
from mnemolog.server.http.authentication import Caller
from mnemolog.store import MemoryStore

DAYS_MAX: Final = 3_650

State = Literal["valid", "expired", "revoked"]


class TokenLine(Result, frozen=True, kw_only=True):
    """A token with its state."""

    token: Token
    state: State


class TokenList(Result, frozen=True, kw_only=True):
    """All tokens, the newest first."""

    tokens: tuple[TokenLine, ...]

    @property
    def verbs(self) -> list[tuple[Verb, str]]:
        """What a token can allow, in words."""
        return [(verb, _WORDS[verb]) for verb in VERBS]


class NewToken(Result, frozen=True, kw_only=True):
    """A token that was made just now. Its secret is shown once."""

    secret: str
    token: Token


@page("/tokens", title="Tokens", template="tokens.html", verb="admin", whole=True)
async def tokens(_request: Request, caller: Caller, _at: AsOf) -> TokenList:
    """Show all tokens, in their state of now."""

    def found(store: MemoryStore) -> TokenList:
        now = to_datetime(clock_of(store).now())
        tokens = reversed(store.admin.tokens())
        return TokenList(tokens=tuple(TokenLine(token=token, state=_state(token, now)) for token in tokens))

    return await read(caller.store, found)


def _state(token: Token, now: datetime) -> State:
    if token.revoked_at is not None:
        return "revoked"
    return "valid" if token.is_valid(now) else "expired"


@action("/tokens", title="A new token", verb="admin", template="token_made.html", whole=True)
async def create(_request: Request, caller: Caller, form: QueryParams) -> NewToken:
    """Make a token, and show its secret once."""
    days = whole(form, "days", VALID_FOR.days, most=DAYS_MAX)
    verbs = [str(verb) for verb in form.getlist("verb")]
    caller.require_all(verb for verb in VERBS if verb in verbs)
    made = await caller.store.admin.create_token(
        text(form, "actor"),
        verbs=verbs,
        scopes=several(form, "scopes", apart="\n"),
        expires_in=timedelta(days=days) if days else None,
    )
    return NewToken(secret=made.secret, token=made.token)


@action("/tokens/revoke", title="Tokens", verb="admin", whole=True)
async def revoke(_request: Request, caller: Caller, form: QueryParams) -> Response:
    """Revoke a token."""
    await caller.store.admin.revoke_token(text(form, "id"))
    return redirect("/tokens")


_WORDS: Final[dict[Verb, str]] = {
    "read": "look at everything in its scopes",
    "record": "add turns, values and sessions",
    "propose": "propose what somebody else approves",
    "approve": "approve and decline proposals, whatever they do",
    "forget": "erase content for good",
    "admin": "what concerns the whole store, tokens among it",
    "metrics": "read the measurements of this server, which hold no content",
}
