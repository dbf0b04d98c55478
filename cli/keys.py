"""The command for the key that the content keys are wrapped with."""

from __future__ import annotations

from typing import Annotated

import typer

from mnemolog.cli import output
from mnemolog.cli.app import AsJson, Store, StoreCommand, UsageError, app
from mnemolog.cli.output import answer
from mnemolog.operations.key_wrapping import KeysReport, wrap_keys


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
    answer(wrap_keys(store, clear=clear, dry_run=not (wrap or clear)), _show, as_json=as_json)


def _show(report: KeysReport) -> None:
    out = output.console()
    key = report.before if report.dry_run else report.wrapped_with
    out.line("the content keys are stored in the clear" if key is None else f"the content keys are wrapped with {key}")
    if report.key_file:
        out.line(f"the key file has {', '.join(report.key_file)}")
    if report.dry_run and report.wrapped_with not in (None, key):
        out.line(f"--wrap would wrap them with {report.wrapped_with}")
    if not report.wiped:
        out.line("the earlier form is still in the file, while other processes read it: run the command again")
