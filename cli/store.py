"""Commands on the store as a whole: create, inspect, check, rebuild, back up, restore and copy it."""

import os
import shlex
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, Final, cast

import typer
from msgspec import structs

from mnemolog.cli.app import (
    EXIT_DAMAGED,
    EXIT_FAILED,
    AsJson,
    Command,
    Group,
    ModelName,
    Refused,
    Store,
    StoreCommand,
    UsageError,
    app,
    chosen_model,
    fail,
    typed,
)
from mnemolog.cli.command import (
    Columns,
    DryRun,
    Yes,
    answer,
    bar,
    note,
    open_store,
    out,
    phases,
    print_list,
    print_table,
    store_with_model,
)
from mnemolog.defaults import DEFAULT_MODEL
from mnemolog.domain import errors
from mnemolog.domain.choices import LANGUAGES, short
from mnemolog.domain.display import counted, dated
from mnemolog.domain.request import acting_as, as_it_is
from mnemolog.forgetting.history import NodeStatus, read_erasures
from mnemolog.infra.log.open import database_script, prepare_database
from mnemolog.infra.log.postgres.address import is_url
from mnemolog.infra.log.sqlite.engine import LOG_FILE
from mnemolog.operations.backup_files import after_findings, failed_commands, note_failed_commands
from mnemolog.operations.copies import (
    BackupReport,
    CopyReport,
    KeysReport,
    RestoreReport,
    copy_store,
    restore_backup,
    wrap_keys,
)
from mnemolog.operations.doctor import DoctorReport, missing_keys, unopened, usual_model
from mnemolog.operations.doctor import doctor as examine
from mnemolog.operations.service import Rebuildable, Status, WalStatus
from mnemolog.projections.history.verify import Verification
from mnemolog.projections.maintenance.context import PRESENT, Issue, RebuildReport
from mnemolog.projections.quarantine import Drift, Quarantine, QuarantinedItem
from mnemolog.projections.vectors.folders import GenerationStatus
from mnemolog.store import MemoryStore

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
            out.line(f"{what} ready for logs" + (" now" if made else ", and was before"))
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
    read_only = ", read-only" if status.read_only else ""
    out.line((status.path, "bold"), f"  log {status.log_id}, format {status.log_format}{read_only}")
    out.line(f"head {status.head}:{status.digest}")
    out.line(f"{status.log_bytes / 1e6:.1f} MB, {_wal(status.wal)}" if status.wal else status.database)
    holds = f"{counted(status.sessions, 'session')}, {counted(status.turns, 'turn')}"
    parts: list[tuple[str, Any, str, str, str]] = [
        ("views", status.views, str(status.views.position), f"{status.views.behind_events:,}", holds)
    ]
    parts += [(item.name, item, str(item.position), f"{item.behind_events:,}", "") for item in status.tables]
    parts += [
        (
            " ".join(filter(None, ("vectors", item.model, short(item.fingerprint)))),
            *(item, str(item.covers), f"{item.behind_events:,}", _holds(item)),
        )
        for item in status.vectors
    ]
    parts += [(item.name, item, "", "", f"{item.bytes / 1e6:.1f} MB") for item in status.caches]
    columns = ("projection", "state", "to", "behind", "holds")
    out.rows(columns, [(name, item.state, *cells) for name, item, *cells in parts])
    print_table(status.nodes, NODE_COLUMNS)
    if not status.vectors and status.stale is None:
        cached = any(cache.name == _CACHE and cache.state == PRESENT for cache in status.caches)
        where = f"no vectors on disk yet, only in the cache ({_CACHE})" if cached else "no vectors yet"
        out.advice(errors.Hint(f"{where}: ", errors.remedy("admin.catch_up_vectors"), " makes them"), style="dim")
    for name, part, *_ in parts:
        if part.state not in _QUIET and not part.action.startswith(_NOTHING):
            is_late = isinstance(part, GenerationStatus) and part.state == Drift.BEHIND
            state = f"{counted(part.behind_events, 'event')} behind" if is_late else part.state
            out.advice(errors.Hint(f"{name}: {state}: ", part.action), style="yellow")
    for item in status.vectors:
        for segment in item.unused:
            where = f"{item.generation}/{segment.name}"
            out.line(f"not used: {where}: {segment.state}: {segment.why}", style="dim")
    if status.quarantine.items:
        lie = f"{counted(status.quarantine.items, 'item')} in quarantine, {status.quarantine.bytes / 1e6:.1f} MB"
        out.advice(errors.Hint(f"{lie}: ", status.quarantine.action), style="yellow")
    for warning in status.warnings:
        out.advice(errors.Hint("WARNING: ", warning), style="bold red")


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


quarantine = typer.Typer(cls=Group, help="Inspect and purge unusable files, which are kept with the reason.")
app.add_typer(quarantine, name="quarantine")

_STYLES: Final = {"note": "dim", "problem": "yellow", "log": "bold red"}


@app.command("doctor", cls=StoreCommand)
def doctor(
    store: Store,
    fix: Annotated[bool, typer.Option("--fix", help="Fix what can be fixed. The log is never changed.")] = False,
    deep: Annotated[bool, typer.Option("--deep", help="Read every byte, and compare the views with the log.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what --fix would do; change nothing.")] = False,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Go on with a log that has lost events; an event says so.")
    ] = False,
    reason: Annotated[str, typer.Option("--reason", help="With --accept-loss: why.")] = "",
    actor: Annotated[
        str, typer.Option("--actor", metavar="NAME", help="With --accept-loss: who decides it.")
    ] = "operator",
    model: Annotated[
        str | None,
        typer.Option("--model", help="The model of the vectors that --fix updates; by default the one the store uses."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find the problems of a store, with consequence and remedy. Exit 0: none, 1: problems, 3: log or keys damaged.

    Example: mnemolog doctor memory/ --deep --dry-run

    Example: mnemolog doctor memory/ --accept-loss --actor ada --reason "the disk of the 3rd of May is gone"
    """
    try:
        with _opened(store, model) as opened, bar("examining") as progress, acting_as(actor):
            if accept_loss and not dry_run:
                opened.admin.doctor(accept_loss=True, reason=reason)
            found = examine(
                *(opened.parts.layout, opened.parts.log, opened.parts.projections),
                deep=deep,
                fix=fix and not dry_run,
                progress=progress,
                model_given=model is not None,
            )
    except (errors.LogDamaged, errors.LogUnreachable) as error:
        found = unopened(store, error, deep=deep)
    answer(found, partial(_show_report, dry_run=dry_run), as_json=as_json)
    if not found.healthy:
        raise typer.Exit(EXIT_DAMAGED if found.log_damaged else EXIT_FAILED)


def _opened(store: Path, model: str | None) -> MemoryStore:
    """Open a store with the model that was given, or else with the one that it uses."""
    if model is None:
        with open_store(store, create=False) as opened:
            model = usual_model(opened.parts.layout, opened.parts.log, opened.parts.projections)
    return open_store(store, model=chosen_model(model or "none"), create=False, background=False)


@quarantine.command("list", cls=StoreCommand)
def list_quarantine(store: Store, as_json: AsJson = False) -> None:
    """List the items in quarantine: what they were, why and when they were moved there.

    Example: mnemolog quarantine list memory/
    """
    with open_store(store, create=False) as opened:
        found = opened.admin.quarantine().items()
    columns = {
        "name": lambda item: item.name,
        "was": lambda item: item.was,
        "state": lambda item: item.state,
        "since": lambda item: "" if item.when is None else dated(item.when),
        "bytes": lambda item: f"{item.bytes:,}",
        "reason": lambda item: item.reason,
    }
    print_list(found, columns, as_json=as_json, last=_size(found))


@quarantine.command("purge", cls=StoreCommand)
def purge(
    store: Store,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete all items in quarantine. A segment ahead of the log is evidence of lost events: list before you purge.

    Example: mnemolog quarantine purge memory/ --yes
    """
    looking = dry_run or not yes
    with open_store(store, create=False) as opened:
        # Also on a full disk, where the store is only read: what it deletes makes room.
        items = Quarantine(opened.parts.layout.own_quarantine).purge(dry_run=looking)
    answer({"dry_run": looking, "items": items}, _show_purged, as_json=as_json)
    if not yes and not dry_run:
        fail("nothing was deleted", hint="add --yes to delete, or --dry-run to only list")


def _show_report(found: DoctorReport, *, dry_run: bool) -> None:
    """Print every finding, and the verdict."""
    shown = [(item, item.matters, _done(item, dry_run=dry_run)) for item in found.findings]
    for (item, matters, done), following in zip_longest(shown, shown[1:]):
        out.line((f"{item.where}: {item.state}", _STYLES[item.severity]), f" ({item.severity}) ", item.why)
        if following is None or following[1:] != (matters, done):  # Once for findings of which the same is true.
            out.line(f"  {matters}", style="dim")
            out.advice(errors.Hint("  ", done))
    out.line(_verdict(found), f"; head {found.head}")
    if found.checked:
        out.line(f"checked: {'; '.join(found.checked)}", style="dim")
    if found.not_checked:
        how = (": ", found.full_check, " checks all of it") if found.full_check else ()
        out.advice(errors.Hint(f"not checked: {'; '.join(found.not_checked)}", *how), style="dim")


def _verdict(found: DoctorReport) -> tuple[str, str]:
    if found.log_damaged:
        keys = all(item.what == "keys" for item in found.findings if item.severity == "log")
        if keys:
            return "THE KEYS OF THE LOG cannot be used", "red"
        return "THE LOG IS DAMAGED, or a witness contradicts it", "red"
    if found.healthy:
        fixed = any(item.fixed for item in found.findings)
        return f"no problems {'left' if fixed else 'found'} in what was checked", "green"
    left = sum(1 for item in found.findings if item.severity == "problem" and not item.fixed)
    return counted(left, "problem"), "yellow"


def _done(item: Issue, *, dry_run: bool) -> str:
    if item.outcome:
        return errors.Hint("fixed: " if item.fixed else "not fixed: ", item.outcome)
    if dry_run:
        return "--fix would fix this" if item.fixable else errors.Hint("--fix cannot fix this: ", item.action)
    return item.action


def _show_purged(done: dict[str, Any]) -> None:
    for item in done["items"]:
        out.line(f"{item.name}  ({item.was}: {item.state})")
    out.line(f"{'would delete' if done['dry_run'] else 'deleted'} {_size(done['items'])}")


def _size(items: Sequence[QuarantinedItem]) -> str:
    return f"{counted(len(items), 'item')}, {counted(sum(item.bytes for item in items), 'byte')}"


@app.command("verify", cls=StoreCommand)
def verify(
    store: Store,
    expect_head: Annotated[
        str | None, typer.Option(metavar="POSITION:DIGEST", help="A head that `mnemolog head` printed earlier.")
    ] = None,
    heads: Annotated[Path | None, typer.Option(metavar="FILE", help="A file of heads; each one is checked.")] = None,
    contents: Annotated[bool, typer.Option("--contents", help="Also decrypt all content, which takes longer.")] = False,
    as_json: AsJson = False,
) -> None:
    """Verify the whole history of a store. Exit status 3 if it is damaged, or the key of its keys is missing.

    Example: mnemolog verify memory/ --heads /mnt/elsewhere/heads.jsonl
    """
    with open_store(store, create=False) as opened, bar("verifying") as progress:
        found = opened.verify(expect_head=expect_head, heads=heads, contents=contents, progress=progress)
        with as_it_is():
            keys = missing_keys(opened.parts.log)
    answer(found, _show_verification, as_json=as_json)
    if found.moved_to:
        note(f"the log takes no more events: it was moved to {found.moved_to}")
    if keys is not None:
        note(f"the content cannot be read: {keys}; {typed('doctor', store)} says what to do")
    if keys is not None and keys.wrapped and found.sound:
        fail("the content was not verified", hint=keys.hint, status=EXIT_DAMAGED)
    if not found.sound:
        fail("the history does not verify", hint=after_findings(store, found.findings), status=EXIT_DAMAGED)


def _show_verification(found: Verification) -> None:
    """Print the verdict, and every finding with its position."""
    for item in found.findings:
        stream = item.stream or "the log"
        out.line(f"position {item.position}, {stream}: {item.kind.value}: {item.detail}", style="red")
    for loss in found.accepted:
        out.line(loss)
    if found.findings_left_out:
        out.line(f"... and {found.findings_left_out:,} more")
    verdict = ("sound", "green") if found.sound else ("DAMAGED" if found.damaged else "NOT SOUND", "red")
    if found.unfit:
        out.line(f"{counted(found.unfit, 'event')} of this log did not come from mnemolog")
    if found.confirmable:
        keys = counted(found.confirmable, "idempotency key")
        out.line(f"{keys} of an earlier server tell of content: a guess can be confirmed, also after it is forgotten")
    looked = f"{counted(found.events, 'event')} in {counted(found.streams, 'stream')}"
    out.line(verdict, f": {looked}, {counted(found.witnesses, 'witness', 'witnesses')} checked")
    out.line(f"head {found.head}:{found.digest}")


@app.command("project", cls=StoreCommand)
def project(
    store: Store,
    model: ModelName = DEFAULT_MODEL,
    as_json: AsJson = False,
) -> None:
    """Embed all turns that have no vector yet.

    Example: mnemolog project memory/
    """
    if chosen_model(model) is None:
        raise errors.ModelUnavailable(None, "without a model there is nothing to embed with (`--model none`)")
    with store_with_model(store, model) as opened, bar("embedding") as progress:
        report = opened.admin.catch_up_vectors(progress=progress)
    print_build(report, [report], as_json=as_json)


@app.command("rebuild", cls=StoreCommand)
def rebuild(
    store: Store,
    projection: Annotated[
        str,
        typer.Argument(metavar="[vectors|views|all]", help="What to rebuild."),
    ] = "all",
    dry_run: DryRun = False,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Skip turns that the model refuses.")] = False,
    model: ModelName = DEFAULT_MODEL,
    as_json: AsJson = False,
) -> None:
    """Rebuild projections from the log. The old ones answer until the new ones are complete.

    Example: mnemolog rebuild memory/ vectors --dry-run
    """
    reports: list[RebuildReport] = []
    parts: tuple[Rebuildable, ...] = ("views", "vectors") if projection == "all" else (cast(Rebuildable, projection),)
    with store_with_model(store, model) as opened, phases() as phase:
        for part in parts:
            reports += opened.rebuild(part, dry_run=dry_run, skip_bad=skip_bad, progress=phase(f"rebuilding {part}"))
    print_build(reports, reports, as_json=as_json)


def print_build(built: Any, reports: list[RebuildReport], *, as_json: bool) -> None:
    """Print how much was built of what was expected. Exits with a failure if that is less."""
    answer(built, lambda _: _show_reports(reports), as_json=as_json)
    if not all(report.complete for report in reports):
        raise typer.Exit(EXIT_FAILED)


def _show_reports(reports: list[RebuildReport]) -> None:
    for item in reports:
        embedded = counted(item.encoded_texts, "text")
        if item.dry_run:
            text = f"{counted(item.expected_turns, 'turn')} to read, {embedded} to embed; nothing was changed"
        else:
            rate = item.built_turns / item.seconds if item.seconds else 0.0
            text = f"expected {item.expected_turns:,}, built {counted(item.built_turns, 'turn')} up to {item.upto}"
            text += f" in {item.seconds:.1f} s ({rate:,.0f}/s), {embedded} embedded"
            text += f", {counted(item.skipped_turns, 'turn')} skipped" if item.skipped_turns else ""
        out.line((item.projection, "bold"), f": {text}")


models = typer.Typer(cls=Group, help="Change the embedding model without interrupting readers.")
app.add_typer(models, name="model")

Known = Annotated[
    str,
    typer.Argument(
        metavar="MODEL|FINGERPRINT",
        help="A model as in `model list`, or 8 digits of its fingerprint.",
    ),
]


@app.command("language", cls=StoreCommand)
def language(
    store: Store,
    language: Annotated[
        str | None, typer.Argument(metavar="[LANGUAGE]", help=f"The new language: {', '.join(LANGUAGES)}.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the language whose word endings the text index removes, or change it. Then all turns are indexed again.

    Example: mnemolog language memory/ de
    """
    with open_store(store, create=False) as opened:
        changed = language is not None and opened.admin.set_language(language)
        if changed:
            opened.admin.catch_up_views()
        code = opened.admin.language()
    line = f"{code} ({LANGUAGES.get(code, code)}){', all turns indexed again' if changed else ''}"
    answer({"language": code, "changed": changed}, line, as_json=as_json)


@models.command("list", cls=StoreCommand)
def list_models(store: Store, as_json: AsJson = False) -> None:
    """List the models that have vectors here or were ever activated.

    Example: mnemolog model list memory/
    """
    with open_store(store, create=False) as opened:
        found = opened.models.list()
    columns = {
        "model": lambda item: item.name,
        "fingerprint": lambda item: short(item.fingerprint),
        "state": lambda item: item.state,
        "to": lambda item: str(item.covers),
        "behind": lambda item: f"{item.behind_events:,}",
        "vectors": lambda item: f"{item.vectors:,}",
        "activated": lambda item: (
            "" if item.activated_at is None else f"at {item.activated_at}{', active' if item.active else ''}"
        ),
    }
    active = any(item.active for item in found)
    last = "" if active else "no model was activated: a store uses the model that it is opened with"
    print_list(found, columns, as_json=as_json, last=last)


@models.command("add", cls=StoreCommand)
def add(
    store: Store,
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Name or folder of a SentenceTransformer model.")],
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Build the vectors of another model, while the active one answers. An interrupted build is resumed.

    Example: mnemolog model add memory/ BAAI/bge-small-en-v1.5
    """
    with open_store(store, create=False) as opened, bar("embedding") as progress:
        report = opened.models.add(model, dry_run=dry_run, progress=progress)
    print_build(report, [report], as_json=as_json)


@models.command("activate", cls=StoreCommand)
def activate(store: Store, model: Known, as_json: AsJson = False) -> None:
    """Make a model the active one in every process. To go back, activate the former one again.

    Example: mnemolog model activate memory/ BAAI/bge-small-en-v1.5
    """
    with open_store(store, create=False) as opened, bar("catching up") as progress:
        activated = opened.models.activate(model, progress=progress)
    word = "activated" if activated.appended else "was active already, since it was activated"
    line = f"{activated.model} ({short(activated.fingerprint)}) {word} at position {activated.position}"
    line += f"; its vectors go to {activated.covers}, {counted(activated.encoded_texts, 'text')} embedded"
    answer(activated, line, as_json=as_json)


@models.command("drop", cls=StoreCommand)
def drop(
    store: Store,
    model: Known,
    dry_run: DryRun = False,
    yes: Yes = False,
    own: Annotated[
        str,
        typer.Option(
            "--model", envvar="MNEMOLOG_MODEL", help="The store's own model; not dropped while no model is active."
        ),
    ] = DEFAULT_MODEL,
    as_json: AsJson = False,
) -> None:
    """Remove a model's vectors. Without --yes, only print what would be removed.

    Example: mnemolog model drop memory/ 7f3a90c1 --yes
    """
    with open_store(store, model=chosen_model(own), create=False) as opened:
        dropped = opened.models.drop(model, dry_run=dry_run or not yes)
    word = "would remove" if dropped.dry_run else "removed"
    line = f"{dropped.model} ({short(dropped.fingerprint)}): {word} {counted(len(dropped.generations), 'generation')}"
    line += f" of {counted(dropped.vectors, 'vector')} and {counted(dropped.embeddings, 'text')} of the embedding cache"
    answer(dropped, line, as_json=as_json)
    if not (yes or dry_run):
        fail("nothing was removed", hint="add --yes to remove it, or --dry-run to only print it")


Keys = Annotated[
    Path | None, typer.Option("--keys", metavar="FOLDER", help="Folder of the content keys, apart from the backup.")
]


@app.command("backup", cls=StoreCommand)
def backup(
    store: Store,
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="A folder that is new or empty.")],
    keys: Keys = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace an earlier backup of this store there.")] = False,
    after_backup: Annotated[
        str | None,
        typer.Option(metavar="CMD…", help="A program with arguments, run without a shell once the backup is complete."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Copy a store as it is now, while other processes keep writing.

    CMD finds the absolute path of TARGET in MNEMOLOG_BACKUP, and that of the folder of the keys in
    MNEMOLOG_BACKUP_KEYS. If it fails, the backup stays, and the exit status is 1.

    Example: mnemolog backup memory/ /backups/2026-11-21 --keys /safe/keys

    Example: mnemolog backup memory/ /backups/daily --replace --after-backup "rclone sync /backups offsite:backups"
    """
    try:
        command = shlex.split(after_backup or "")
    except ValueError as error:
        raise UsageError(f"--after-backup: {error}") from error
    with open_store(store, create=False, background=False) as opened, bar("copying", "verifying") as progress:
        report = opened.backup(target, keys=keys, replace=replace, progress=progress)
    failure = _run(command, report, opened.path) if command else ""
    answer(
        structs.replace(report, notes=(*report.notes, *([failure] if failure and as_json else []))),
        _show_backup,
        as_json=as_json,
    )
    if failure:
        fail(failure, hint="the backup is complete; run the command by hand, or the next backup does")


def _run(command: list[str], report: BackupReport, store: Path) -> str:
    """Run what is to follow a backup; return why it failed. What it prints goes to standard error."""
    environment = os.environ | {"MNEMOLOG_BACKUP": str(Path(report.target).absolute())}
    if report.keys is not None:
        environment["MNEMOLOG_BACKUP_KEYS"] = str(Path(report.keys).absolute().parent)
    failed = failed_commands(store)
    note_failed_commands(store, failed + 1)  # Before it runs: one that is killed with this process has failed too.
    try:
        subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=2, check=True)
    except subprocess.CalledProcessError as error:
        return f"the command after the backup failed: {command[0]} ended with status {error.returncode}"
    except OSError as error:
        return f"the command after the backup failed: {command[0]} cannot be run: {error.strerror}"
    except KeyboardInterrupt:
        return "the command after the backup failed: it was interrupted"
    note_failed_commands(store, 0)
    return ""


@app.command("restore", cls=Command)
def restore(
    backup: Annotated[Path, typer.Argument(metavar="BACKUP", help="The folder of a backup.")],
    store: Annotated[Path, typer.Argument(metavar="DIR", help="The folder to restore to: new or empty.")],
    keys: Keys = None,
    erasures: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="What was forgotten and revoked since: `mnemolog forgotten DIR --erasures`."),
    ] = None,
    revoke_tokens: Annotated[bool, typer.Option("--revoke-tokens", help="Revoke all tokens of a server.")] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Restore a backup into a new folder: every byte is checked, then the history.

    Example: mnemolog restore /backups/2026-11-21 memory/ --keys /safe/keys
    """
    with bar("copying", "verifying") as progress:
        report = restore_backup(
            backup,
            store,
            keys=keys,
            erasures=() if erasures is None else read_erasures(erasures),
            revoke_tokens=revoke_tokens,
            dry_run=dry_run,
            progress=progress,
        )
    answer(report, _show_restore, as_json=as_json)


def _size_and_time(report: BackupReport | RestoreReport) -> str:
    return f"{report.bytes / 1e6:.1f} MB in {report.seconds:.1f} s"


def _show_backup(report: BackupReport) -> None:
    out.line(f"backup {report.target}: log {report.log_id} up to {report.head}; ", _size_and_time(report))
    out.line(f"head {report.head}:{report.digest}")
    if report.keys is not None:
        out.line(f"keys: {report.keys}")
    for text in report.notes:
        out.line(text, style="bold red")


def _show_restore(report: RestoreReport) -> None:
    done = f"would restore to {report.path}" if report.dry_run else f"restored {report.path}"
    out.line(f"{done}: log {report.log_id} up to {report.head}; ", _size_and_time(report))
    if report.erasures:
        out.line(f"forgotten again: {counted(report.erasures, 'request')}")
    if report.revoked:
        out.line(f"revoked: {counted(report.revoked, 'token')}")
    for token in report.tokens:
        out.line(f"valid: token {token.id} of {token.actor}")
    out.line(f"head {report.head}:{report.digest}, as of {dated(report.created_at)}")
    for text in report.notes:
        out.line(text, style="bold red")


@app.command("copy", cls=StoreCommand)
def copy(
    store: Store,
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="A new folder, that of an earlier copy, or the URL of a database.")
    ],
    log: Annotated[str | None, typer.Option(help="In a database: the name of the log.")] = None,
    local: Annotated[
        Path | None, typer.Option(help="With --log: the folder of the copy on this machine, for other commands.")
    ] = None,
    keys: Annotated[str | None, typer.Option(metavar="URL", help="Another database, for the keys of the copy.")] = None,
    without_keys: Annotated[bool, typer.Option("--without-keys", help="Do not copy the content keys.")] = False,
    move: Annotated[
        bool, typer.Option("--move", help="Close DIR for events once it is copied. Stop its writers first.")
    ] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Copy a store to a folder or into PostgreSQL, with the same digests. Run it again to copy what came later.

    Example: mnemolog copy memory/ /mnt/elsewhere/memory
    """
    with bar("copying", "verifying") as progress:
        report = copy_store(
            store,
            target,
            log=log,
            local=local,
            keys=keys,
            with_keys=not without_keys,
            move=move,
            dry_run=dry_run,
            progress=progress,
        )
    answer(report, _show_copy, as_json=as_json)


def _show_copy(report: CopyReport) -> None:
    done = f"would copy to {report.target}" if report.dry_run else f"copied to {report.target}"
    where = f", {report.database}" if report.database else ""
    out.line(f"{done}{where}: {counted(report.copied, 'event')} in {report.seconds:.1f} s")
    out.line(f"log {report.log_id}, head {report.head}:{report.digest}")
    if report.moved:
        out.line(f"{report.source} takes no more events")
    for text in report.notes:
        out.line(text)


@app.command("keys", cls=StoreCommand)
def keys(
    store: Store,
    wrap: Annotated[bool, typer.Option("--wrap", help="Wrap them with the first key of the key file.")] = False,
    clear: Annotated[bool, typer.Option("--clear", help="Store them in the clear again.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print how the content keys are stored, and with --wrap or --clear change it. Without these, nothing is changed.

    A wrapped key opens nothing without the key file, whose loss is the loss of the content.

    Example: mnemolog keys memory/

    Example: mnemolog --key-file /mnt/elsewhere/mnemolog.key keys memory/ --wrap
    """
    if wrap and clear:
        raise UsageError("use --wrap without --clear")
    answer(wrap_keys(store, clear=clear, dry_run=not (wrap or clear)), _show_keys, as_json=as_json)


def _show_keys(report: KeysReport) -> None:
    key = report.before if report.dry_run else report.wrapped_with
    out.line("the content keys are stored in the clear" if key is None else f"the content keys are wrapped with {key}")
    if report.key_file:
        out.line(f"the key file has {', '.join(report.key_file)}")
    if report.dry_run and report.wrapped_with not in (None, key):
        out.line(f"--wrap would wrap them with {report.wrapped_with}")
    if not report.wiped:
        out.line("the earlier form is still in the file, while other processes read it: run the command again")
