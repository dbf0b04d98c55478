"""Commands that write to the log: init, record, import."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from mnemolog.cli import completion_values as known
from mnemolog.cli import output, session_output
from mnemolog.cli.app import AsJson, ModelName, Store, StoreCommand, app, chosen_model
from mnemolog.cli.arguments import Named, session_called, store_with_model
from mnemolog.cli.history_output import show_log_import
from mnemolog.cli.messages import standard_input
from mnemolog.cli.progress import Phase, bar, phases
from mnemolog.cli.times import given_time
from mnemolog.defaults import DEFAULT_MODEL
from mnemolog.domain import errors
from mnemolog.store import MemoryStore

Files = Annotated[list[Path], typer.Argument(metavar="FILE...", exists=True, dir_okay=False, help="Files to read.")]


@app.command("init", cls=StoreCommand)
def init(
    store: Store,
    plain: Annotated[bool, typer.Option("--plain", help="Do not encrypt; then nothing can be forgotten.")] = False,
    as_json: AsJson = False,
) -> None:
    """Create a store in a new or empty folder. Its content is encrypted, unless --plain is given.

    Example: mnemolog init memory/
    """
    with MemoryStore.open(store, model=None, encrypt=False if plain else None) as opened:
        status = opened.status()
    if as_json:
        output.print_json(status)
    else:
        output.console().line(f"store {status.path}, log {status.log_id}, head {status.head}")


@app.command("record", cls=StoreCommand)
def record(
    store: Store,
    session: Named,
    text: Annotated[str, typer.Argument(help="What was said; '-' reads it from standard input.")],
    role: Annotated[str, typer.Option(autocompletion=known.roles, help="user, assistant, system or tool.")] = "user",
    key: Annotated[str | None, typer.Option(help="Idempotency key: a retry adds nothing.")] = None,
    speaker: Annotated[str | None, typer.Option(help="Name of the speaker.")] = None,
    said_at: Annotated[
        datetime | None,
        typer.Option(metavar="TIME", parser=given_time, help="When it was said; local time if no zone is given."),
    ] = None,
    metadata: Annotated[str | None, typer.Option(help="A JSON object to keep with the turn.")] = None,
    start: Annotated[bool, typer.Option("--start", help="Start the session if it does not exist.")] = False,
    title: Annotated[str | None, typer.Option(help="Title of a session that is started.")] = None,
    scope: Annotated[str, typer.Option(autocompletion=known.scopes, help="Scope of a session that is started.")] = "",
    agent: Annotated[
        str, typer.Option(autocompletion=known.agents, help="Agent of a session that is started.")
    ] = "cli",
    as_json: AsJson = False,
) -> None:
    """Record one turn. It is durable when the command returns.

    Example: mnemolog record memory/ trip "I moved to Lisbon in March." --start --scope acme/support/alice
    """
    said = standard_input("text") if text == "-" else text
    with MemoryStore.open(store, model=None, create=False) as opened:
        if start and opened.find_session(session) is None:
            opened.session(session, title=title, scope=scope, agent=agent)
        chosen = session_called(opened, session).id
        turn = opened.record(
            chosen,
            role,
            said,
            key=key,
            speaker=speaker,
            said_at=said_at,
            metadata=_object(metadata),
        )
    if as_json:
        output.print_json(turn)
    else:
        output.console().line(f"recorded at position {turn.position} in session {turn.session}")


@app.command("import", cls=StoreCommand)
def import_(
    store: Store,
    files: Files,
    format: Annotated[str | None, typer.Option(help="jsonl, claude-code, codex, chatgpt or openai.")] = None,  # noqa: A002
    field: Annotated[list[str] | None, typer.Option(help="Field names in the file: text=body,session=room+day")] = None,
    scope: Annotated[str | None, typer.Option(help="Scope if the file names none.")] = None,
    agent: Annotated[str | None, typer.Option(help="Agent if the file names none.")] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Skip invalid lines and list them.")] = False,
    vectors: Annotated[bool, typer.Option(help="Embed what was imported.")] = True,
    model: ModelName = DEFAULT_MODEL,
    as_json: AsJson = False,
) -> None:
    """Import conversations, or an exported log into a new store. Turns already imported are skipped.

    Example: mnemolog import memory/ turns.jsonl --field text=body,session=room,time=at
    """
    if _is_log(files):
        _import_log(store, files, as_json=as_json)
        return
    from mnemolog.adapters.importers.import_files import import_files

    with store_with_model(store, model) as opened, phases() as phase:
        report = import_files(
            opened,
            files,
            format=format,
            fields=field or (),
            scope=scope,
            agent=agent,
            skip_bad=skip_bad,
            progress=phase("reading"),
        )
        _catch_up(opened, phase, vectors=vectors and chosen_model(model) is not None)
    if as_json:
        output.print_json(report)
    else:
        output.show_import(report)


def _is_log(files: list[Path]) -> bool:
    from mnemolog.audit.export_reader import is_log_export

    return any(is_log_export(file) for file in files)


def _import_log(folder: Path, files: list[Path], *, as_json: bool) -> None:
    if len(files) > 1:
        raise typer.BadParameter("one of these files is an exported log; import it alone")
    from mnemolog.audit.log_import import import_log

    with bar("importing") as progress:
        answer = import_log(files[0], folder, progress=progress)
    session_output.answer(answer, show_log_import, as_json=as_json)


def _catch_up(store: MemoryStore, phase: Phase, *, vectors: bool) -> None:
    """Update the projections. The turns are already recorded, so a missing model is only a note."""
    store.admin.catch_up_views(progress=phase("indexing"))
    if vectors:
        try:
            store.admin.catch_up_vectors(progress=phase("embedding"))
        except errors.ModelError as error:
            output.note(f"nothing was embedded: {error}; {error.hint}")


def _object(value: str | None) -> dict[str, Any] | None:
    if value is None:
        return None
    try:
        return msgspec.json.decode(value, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        example = """--metadata '{"channel": "mail"}'"""
        raise errors.InvalidInput("--metadata", f"{value!r} is not a JSON object; example: {example}") from error
