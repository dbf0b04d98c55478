"""Commands on the store as a whole: init, status, head, nodes."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from mnemolog.cli.app import AsJson, Refused, Store, StoreCommand, app
from mnemolog.cli.arguments import open_store
from mnemolog.cli.output import Columns, answer, console, print_list, print_table
from mnemolog.domain import errors
from mnemolog.domain.choices import LANGUAGES, short
from mnemolog.domain.display import counted, dated
from mnemolog.domain.hints import Hint, remedy
from mnemolog.forgetting.results import NodeStatus
from mnemolog.infra.log.open import database_script, prepare_database
from mnemolog.infra.log.postgres.address import is_url
from mnemolog.infra.log.sqlite.engine import LOG_FILE
from mnemolog.operations.status import Status, WalStatus
from mnemolog.projections.maintenance.context import PRESENT
from mnemolog.projections.quarantine import Drift
from mnemolog.projections.vectors.inventory import GenerationStatus

_CACHE: Final = "embeddings.db"
_QUIET: Final = ("current", "present", "other-model")
_NOTHING: Final = "Nothing to do"


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


@app.command("status", cls=StoreCommand)
def status(store: Store, as_json: AsJson = False) -> None:
    """Print the head of the log and how far each projection has followed it.

    Example: mnemolog status memory/
    """
    with open_store(store, create=False) as opened:
        found = opened.status()
    answer(found, _show_status, as_json=as_json)


@app.command("head", cls=StoreCommand)
def head(
    store: Store,
    append: Annotated[
        Path | None,
        typer.Option(
            "--append",
            metavar="FILE",
            help="Append the head to this file, unless the file's last head contradicts the log.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print position and digest of the log's last event, to keep elsewhere as a witness.

    Example: mnemolog head memory/ --append /mnt/elsewhere/heads.jsonl
    """
    with open_store(store, create=False) as opened:
        found = opened.head() if append is None else opened.audit.append_head(append)
    answer(found, print, as_json=as_json)


def _show_status(status: Status) -> None:
    """Print the state of a store, and what to do about projections that are not current."""
    out = console()
    read_only = ", read-only" if status.read_only else ""
    out.line((status.path, "bold"), f"  log {status.log_id}, format {status.log_format}{read_only}")
    out.line(f"head {status.head}:{status.digest}")
    out.line(f"{status.log_bytes / 1e6:.1f} MB, {_wal(status.wal)}" if status.wal else status.database)
    views = status.views
    holds = f"{counted(status.sessions, 'session')}, {counted(status.turns, 'turn')}"
    rows = [("views", views.state, str(views.position), f"{views.behind_events:,}", holds)]
    actions = [("views", views.state, views.action)]
    for followed in status.tables:
        rows.append((followed.name, followed.state, str(followed.position), f"{followed.behind_events:,}", ""))
        actions.append((followed.name, followed.state, followed.action))
    for item in status.vectors:
        name = " ".join(filter(None, ("vectors", item.model, short(item.fingerprint))))
        rows.append((name, item.state, str(item.covers), f"{item.behind_events:,}", _holds(item)))
        state = f"{counted(item.behind_events, 'event')} behind" if item.state == Drift.BEHIND else item.state
        actions.append((name, state, item.action))
    for cache in status.caches:
        rows.append((cache.name, cache.state, "", "", f"{cache.bytes / 1e6:.1f} MB"))
        actions.append((cache.name, cache.state, cache.action))
    out.rows(("projection", "state", "to", "behind", "holds"), rows)
    print_table(status.nodes, NODE_COLUMNS)
    if not status.vectors and status.stale is None:
        cached = any(cache.name == _CACHE and cache.state == PRESENT for cache in status.caches)
        where = f"no vectors on disk yet, only in the cache ({_CACHE})" if cached else "no vectors yet"
        out.advice(Hint(f"{where}: ", remedy("admin.catch_up_vectors"), " makes them"), style="dim")
    for name, state, action in actions:
        if state not in _QUIET and not action.startswith(_NOTHING):
            out.advice(Hint(f"{name}: {state}: ", action), style="yellow")
    for item in status.vectors:
        for segment in item.unused:
            where = f"{item.generation}/{segment.name}"
            out.line(f"not used: {where}: {segment.state}: {segment.why}", style="dim")
    if status.quarantine.items:
        lie = f"{counted(status.quarantine.items, 'item')} in quarantine, {status.quarantine.bytes / 1e6:.1f} MB"
        out.advice(Hint(f"{lie}: ", status.quarantine.action), style="yellow")
    for warning in status.warnings:
        out.advice(Hint("WARNING: ", warning), style="bold red")


def _wal(wal: WalStatus) -> str:
    size = f"write-ahead log {wal.bytes / 1e6:.1f} MB"
    return f"{size}, {counted(wal.waiting_frames, 'page')} waiting" if wal.why else size


def _holds(item: GenerationStatus) -> str:
    parts = [counted(item.vectors, "vector"), f"{counted(item.segments, 'segment')}, {item.bytes / 1e6:.1f} MB"]
    if item.skipped:
        parts.append(f"{counted(len(item.skipped), 'turn')} refused by the model")
    return ", ".join(parts)


NODE_COLUMNS: Final[Columns[NodeStatus]] = {
    "node": lambda item: item.node,
    "folder": lambda item: item.label,
    "to": lambda item: str(item.position),
    "behind": lambda item: f"{item.behind_events:,}",
    "last seen": lambda item: dated(item.seen_at),
    "": lambda item: "this one" if item.here else "",
}


@app.command("nodes", cls=StoreCommand)
def nodes(
    store: Store,
    remove: Annotated[
        str | None, typer.Option("--remove", metavar="NODE", help="Remove a node that is gone for good.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the nodes of a log in PostgreSQL: how far each has read, and when it was last seen. A folder has none.

    Example: mnemolog nodes memory/
    """
    with open_store(store, create=False) as opened:
        if remove is not None and not opened.admin.remove_node(remove):
            known = ", ".join(item.node for item in opened.admin.nodes()) or "none"
            raise Refused(f"there is no node {remove!r}", hint=f"the nodes of this log: {known}")
        found = opened.admin.nodes()
    print_list(found, NODE_COLUMNS, as_json=as_json, last=counted(len(found), "node"))
