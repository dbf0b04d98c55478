"""Commands on secrets: replace them before they are recorded, and find those that were recorded."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from mnemolog.audit.secret_scan import Secret
from mnemolog.cli.app import AsJson, Store, StoreCommand, app, typed
from mnemolog.cli.arguments import open_store
from mnemolog.cli.output import Columns, answer, console, print_table
from mnemolog.cli.progress import bar
from mnemolog.domain.display import counted

POSITIONS_MAX: Final = 500
"""How many positions the command that forgets them names; the next scan finds the others."""
_COLUMNS: Final[Columns[Secret]] = {
    "position": lambda secret: f"@{secret.position}",
    "kind": lambda secret: secret.kind,
    "field": lambda secret: secret.field,
    "session": lambda secret: secret.session or "",
    "characters": lambda secret: str(secret.length),
}


@app.command("redaction", cls=StoreCommand)
def redaction(
    store: Store,
    on: Annotated[bool | None, typer.Option("--on/--off", help="Replace them from now on, or no longer.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print or change whether secrets in what is recorded are replaced, by every program that uses the store.

    Example: mnemolog redaction memory/ --on
    """
    with open_store(store, create=False) as opened:
        changed = on is not None and opened.admin.set_redaction(on)
        on = opened.admin.redaction()
    line = f"{'on' if on else 'off'}: secrets are {'' if on else 'not '}replaced before they are recorded"
    answer({"redaction": on, "changed": changed}, line, as_json=as_json)


@app.command("scan-secrets", cls=StoreCommand)
def scan_secrets(store: Store, as_json: AsJson = False) -> None:
    """Find keys, tokens and passwords in the log: position, kind and length of each, never the secret.

    Example: mnemolog scan-secrets memory/
    """
    with open_store(store, create=False) as opened, bar("scanning") as progress:
        found = opened.audit.scan_secrets(progress=progress)
    answer(found, partial(_show, store=store), as_json=as_json)


def _show(found: Sequence[Secret], *, store: Path) -> None:
    """Print the secrets, and the command that shows what forgetting them would take."""
    print_table(found, _COLUMNS)
    console().line(counted(len(found), "secret"))
    if found:
        positions = list(dict.fromkeys(item.position for item in found))[:POSITIONS_MAX]
        console().line("make them invalid where they are used: backups hold them; then see what would be forgotten:")
        console().line(typed("forget", store, *(part for at in positions for part in ("--position", at)), "--dry-run"))
