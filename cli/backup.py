"""Commands that keep copies of a store, and its keys: backup, restore, copy, keys."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from typing import Annotated

import typer
from msgspec import structs

from mnemolog.cli.app import AsJson, Command, Store, StoreCommand, UsageError, app, fail
from mnemolog.cli.command import DryRun, answer, bar, console, open_store
from mnemolog.domain.display import counted, dated
from mnemolog.forgetting.results import read_erasures
from mnemolog.operations.backup_files import failed_commands, note_failed_commands
from mnemolog.operations.copies import (
    BackupReport,
    CopyReport,
    KeysReport,
    RestoreReport,
    copy_store,
    restore_backup,
    wrap_keys,
)

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
        known = () if erasures is None else read_erasures(erasures)
        report = restore_backup(
            backup,
            store,
            keys=keys,
            erasures=known,
            revoke_tokens=revoke_tokens,
            dry_run=dry_run,
            progress=progress,
        )
    answer(report, _show_restore, as_json=as_json)


def _show_backup(report: BackupReport) -> None:
    out = console()
    size = f"{report.bytes / 1e6:.1f} MB in {report.seconds:.1f} s"
    out.line(f"backup {report.target}: log {report.log_id} up to {report.head}; {size}")
    out.line(f"head {report.head}:{report.digest}")
    if report.keys is not None:
        out.line(f"keys: {report.keys}")
    for note in report.notes:
        out.line(note, style="bold red")


def _show_restore(report: RestoreReport) -> None:
    out = console()
    done = f"would restore to {report.path}" if report.dry_run else f"restored {report.path}"
    size = f"{report.bytes / 1e6:.1f} MB in {report.seconds:.1f} s"
    out.line(f"{done}: log {report.log_id} up to {report.head}; {size}")
    if report.erasures:
        out.line(f"forgotten again: {counted(report.erasures, 'request')}")
    if report.revoked:
        out.line(f"revoked: {counted(report.revoked, 'token')}")
    for token in report.tokens:
        out.line(f"valid: token {token.id} of {token.actor}")
    out.line(f"head {report.head}:{report.digest}, as of {dated(report.created_at)}")
    for note in report.notes:
        out.line(note, style="bold red")


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
    out = console()
    done = f"would copy to {report.target}" if report.dry_run else f"copied to {report.target}"
    where = f", {report.database}" if report.database else ""
    out.line(f"{done}{where}: {counted(report.copied, 'event')} in {report.seconds:.1f} s")
    out.line(f"log {report.log_id}, head {report.head}:{report.digest}")
    if report.moved:
        out.line(f"{report.source} takes no more events")
    for note in report.notes:
        out.line(note)


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
    out = console()
    key = report.before if report.dry_run else report.wrapped_with
    out.line("the content keys are stored in the clear" if key is None else f"the content keys are wrapped with {key}")
    if report.key_file:
        out.line(f"the key file has {', '.join(report.key_file)}")
    if report.dry_run and report.wrapped_with not in (None, key):
        out.line(f"--wrap would wrap them with {report.wrapped_with}")
    if not report.wiped:
        out.line("the earlier form is still in the file, while other processes read it: run the command again")
