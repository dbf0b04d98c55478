"""The command that installs mnemolog as the memory of Hermes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mnemolog.adapters.hermes import config
from mnemolog.cli.app import AsJson, Command, Group, app
from mnemolog.cli.arguments import DryRun
from mnemolog.cli.output import answer, console

hermes = typer.Typer(cls=Group, help="Use mnemolog as the memory of Hermes. Needs the extra 'hermes'.")
app.add_typer(hermes, name="hermes")


@hermes.callback()
def _commands() -> None:  # With a callback, Typer expects a command name even if there is only one.
    pass


@hermes.command("install", cls=Command)
def install(
    home: Annotated[
        Path | None,
        typer.Option("--home", metavar="DIR", help="Hermes' home folder; by default the one that Hermes uses."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace files of the plugin even if they were changed.")
    ] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Install the plugin in Hermes' home. A second run changes nothing. Run it in Hermes' Python environment.

    Example: mnemolog hermes install --dry-run
    """
    usual = config.hermes_home()
    answer(config.install(home or usual, force=force, dry_run=dry_run), _show, as_json=as_json)


def _show(done: config.Installed) -> None:
    out = console()
    for name, action in done.files.items():
        told = "unchanged" if action == "unchanged" else f"would be {action}" if done.dry_run else action
        out.line(f"{done.folder}/{name}  {told}")
    out.line("next: hermes memory setup mnemolog")
