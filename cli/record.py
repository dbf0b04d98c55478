"""Commands that write to the log: init, record."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from mnemolog.adapters.support.store_access import begin_session
from mnemolog.cli.app import AsJson, Store, StoreCommand, app
from mnemolog.cli.arguments import Named, given_time, open_store, session_called, standard_input
from mnemolog.cli.output import answer, console, note
from mnemolog.domain import errors
from mnemolog.domain.language import LANGUAGES
from mnemolog.domain.session import checked_session_id
from mnemolog.infra.log.open import database_script, prepare_database
from mnemolog.infra.log.postgres.address import is_url
from mnemolog.infra.log.sqlite.log_file import LOG_FILE


@app.command("init", cls=StoreCommand)
def init(
    store: Annotated[
        str, typer.Argument(metavar="DIR", help="Folder of the store, or URL of a PostgreSQL database for logs.")
    ],
    plain: Annotated[bool, typer.Option("--plain", help="Do not encrypt; then nothing can be forgotten.")] = False,
    language: Annotated[
        str | None, typer.Option(help=f"Language of its conversations: {', '.join(LANGUAGES)}.")
    ] = None,
    log: Annotated[str | None, typer.Option(help="In a database: the name of the log.")] = None,
    local: Annotated[
        Path | None, typer.Option(help="With --log: the store's folder on this machine, to give to other commands.")
    ] = None,
    keys: Annotated[
        str | None, typer.Option(metavar="URL", help="Another database, for the keys of encrypted content.")
    ] = None,
    print_sql: Annotated[
        bool, typer.Option("--print-sql", help="Print the SQL that prepares the database; change nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Create a store in a new or empty folder. Its content is encrypted, unless --plain is given.

    With the URL of a database, make the tables and roles for logs; with --log and --local, create a store there too.

    Example: mnemolog init memory/
    """
    if print_sql:
        typer.echo(database_script(apart=keys is not None), nl=False)
        return
    if is_url(store):
        made = prepare_database(store, keys=keys)
        if log is None and local is None:
            what = "the database is" if keys is None else "both databases are"
            console().line(f"{what} ready for logs" + (" now" if made else ", and was before"))
            return
    where: dict[str, Any] = {"log": log, "local": local, "keys": keys}
    before = ", there before" if (Path(store).expanduser() / LOG_FILE).exists() else ""
    with open_store(store, encrypt=False if plain else None, language=language, **where) as opened:
        if is_url(store):  # The log may be an old one, and the node new.
            with suppress(errors.KeysMissing):
                opened.admin.catch_up_views()
        status = opened.status()
    answer(status, f"store {status.path}{before}, log {status.log_id}, head {status.head}", as_json=as_json)


@app.command("record", cls=StoreCommand)
def record(
    store: Store,
    session: Named,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What was said; '-' reads it from standard input.")],
    role: Annotated[str, typer.Option(help="user, assistant, system or tool.")] = "user",
    key: Annotated[str | None, typer.Option(help="Idempotency key: a retry adds nothing.")] = None,
    speaker: Annotated[str | None, typer.Option(help="Name of the speaker.")] = None,
    said_at: Annotated[
        datetime | None,
        typer.Option(metavar="TIME", parser=given_time, help="When it was said; UTC if no zone is given."),
    ] = None,
    metadata: Annotated[str | None, typer.Option(help="A JSON object to keep with the turn.")] = None,
    start: Annotated[bool, typer.Option("--start", help="Start the session, in a new store if there is none.")] = False,
    title: Annotated[str | None, typer.Option(help="Title of a session that is started.")] = None,
    scope: Annotated[str | None, typer.Option(help="Scope of a session that is started.")] = None,
    agent: Annotated[str | None, typer.Option(help="Agent of a session that is started; 'cli' if none.")] = None,
    as_json: AsJson = False,
) -> None:
    """Record one turn. It is durable when the command returns.

    Example: mnemolog record memory/ trip "I moved to Lisbon in March." --start --scope acme/support/alice
    """
    said, kept = standard_input("text") if text == "-" else text, _object(metadata)
    checked_session_id(session)
    is_new = start and not any(store.glob("*"))
    with open_store(store, create=is_new) as opened:
        if is_new:
            note(f"created the store {store}")
        if start:
            begin_session(opened, session, title=title, scope=scope, agent=agent or "cli")
        chosen = opened.session(session_called(opened, session).id, title=title, scope=scope, agent=agent).id
        turn = opened.record(
            chosen,
            role,
            said,
            key=key,
            speaker=speaker,
            said_at=said_at,
            metadata=kept,
        )
    answer(turn, f"recorded at position {turn.position} in session {turn.session}", as_json=as_json)


def _object(value: str | None) -> dict[str, Any] | None:
    if value is None:
        return None
    try:
        return msgspec.json.decode(value, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        example = """--metadata '{"channel": "mail"}'"""
        raise errors.InvalidInput("--metadata", f"{value!r} is not a JSON object; example: {example}") from error
