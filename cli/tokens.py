"""Commands on tokens of a server: create, list, revoke."""

from __future__ import annotations

import getpass
from typing import Annotated, Final

import typer

from mnemolog.cli.app import AsJson, Group, Store, StoreCommand, app
from mnemolog.cli.arguments import open_store
from mnemolog.cli.output import answer, note, print_list
from mnemolog.domain.display import counted, dated
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.limits import checked_label
from mnemolog.domain.position import parse_duration, to_datetime
from mnemolog.domain.request import acting_as
from mnemolog.domain.tokens import VALID_FOR, VERBS, CreatedToken
from mnemolog.infra.runtime.clock import SystemClock

UNKNOWN_USER: Final = "local"

tokens = typer.Typer(cls=Group, help="Create, list and revoke the tokens of a server.")
app.add_typer(tokens, name="token")


@tokens.command("create", cls=StoreCommand)
def create(
    store: Store,
    actor: Annotated[
        str, typer.Option("--actor", metavar="NAME", help="Who acts with it: recorded in every event it appends.")
    ],
    verb: Annotated[
        list[str],
        typer.Option("--verb", metavar="VERB", help=f"What it allows: {', '.join(VERBS)}. Repeatable."),
    ] = ["read", "record"],  # noqa: B006
    scope: Annotated[
        list[str] | None,
        typer.Option(
            "--scope", metavar="SCOPE", help="Allow it within this scope only. Repeatable; by default everywhere."
        ),
    ] = None,
    expires: Annotated[
        str,
        typer.Option("--expires", metavar="AGE", help="When it ends, such as 12h, 30d or 8w, or `never`."),
    ] = f"{VALID_FOR.days}d",
    as_json: AsJson = False,
) -> None:
    """Create a token and print it. It is shown once: the store keeps only a digest of it.

    Example: mnemolog token create memory/ --actor alice --scope acme/alice --verb read --verb record --expires 30d
    """
    with open_store(store, create=False) as opened, acting_as(_user()):
        created = opened.admin.create_token(
            actor,
            verbs=verb,
            scopes=scope or (),
            expires_in=None if expires == "never" else parse_duration("expires", expires),
        )
    _show(created, as_json=as_json)


@tokens.command("list", cls=StoreCommand)
def list_(store: Store, as_json: AsJson = False) -> None:
    """List the tokens: who acts with them, what they allow, and until when. Revoked and expired ones are included.

    Example: mnemolog token list memory/
    """
    with open_store(store, create=False) as opened:
        found = opened.admin.tokens()
    now = to_datetime(SystemClock().now())
    columns = {
        "id": lambda item: item.id,
        "actor": lambda item: item.actor,
        "verbs": lambda item: ", ".join(item.verbs),
        "scopes": lambda item: ", ".join(item.scopes) or "everywhere",
        "created": lambda item: dated(item.created_at),
        "last used": lambda item: "never" if item.last_used_at is None else dated(item.last_used_at),
        "expires": lambda item: "never" if item.expires_at is None else dated(item.expires_at),
        "state": lambda item: "revoked" if item.revoked_at else "valid" if item.is_valid(now) else "expired",
    }
    valid = sum(item.is_valid(now) for item in found)
    print_list(found, columns, as_json=as_json, last=counted(valid, "valid token"))


Named = Annotated[
    str, typer.Argument(metavar="NAME", help="The id of the token, as in `token list`, or an actor with one token.")
]


@tokens.command("rotate", cls=StoreCommand)
def rotate(
    store: Store,
    token: Named,
    revoke_old_after: Annotated[
        str,
        typer.Option(metavar="AGE", help="How long the old one is still valid, such as 30m or 2d; 0m for no longer."),
    ] = "1h",
    as_json: AsJson = False,
) -> None:
    """Print a new token that may do what the old one may, and revoke the old one after a time.

    Example: mnemolog token rotate memory/ alice --revoke-old-after 1h
    """
    after = parse_duration("revoke_old_after", revoke_old_after)
    with open_store(store, create=False) as opened, acting_as(_user()):
        _show(opened.admin.rotate_token(token, revoke_old_after=after), as_json=as_json)


@tokens.command("revoke", cls=StoreCommand)
def revoke(
    store: Store,
    token: Named,
    as_json: AsJson = False,
) -> None:
    """Revoke a token. Every server refuses it from the next request on.

    Example: mnemolog token revoke memory/ 0a1b2c3d4e5f
    """
    with open_store(store, create=False) as opened, acting_as(_user()):
        revoked = opened.admin.revoke_token(token)
    answer(revoked, f"token {revoked.id} of {revoked.actor} is revoked", as_json=as_json)


def _show(created: CreatedToken, *, as_json: bool) -> None:
    answer(created, created.secret, as_json=as_json)
    if not as_json:
        note(f"token {created.token.id} of {created.token.actor}; keep it now, because it cannot be shown again")
        if (old := created.replaces) is not None:
            ends = "is revoked" if old.expires_at is None or old.revoked_at else f"ends {dated(old.expires_at)}"
            note(f"the token {old.id}, which it replaces, {ends}")


def _user() -> str:
    """Return the name of the user of this process, or `local` if it has none that can be an actor."""
    try:
        return checked_label("actor", getpass.getuser())
    except (InvalidInput, OSError, KeyError, ImportError):  # What `getuser` raises depends on the version of Python.
        return UNKNOWN_USER
