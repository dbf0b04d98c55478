"""Commands on models: list, add, activate, drop."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from mnemolog.cli import model_output as show
from mnemolog.cli.app import EXIT_FAILED, AsCsv, AsJson, Group, Store, StoreCommand, app, chosen_model, remark
from mnemolog.cli.arguments import DryRun, open_store
from mnemolog.cli.output import answer
from mnemolog.cli.progress import bar
from mnemolog.defaults import DEFAULT_MODEL
from mnemolog.domain.language import LANGUAGES
from mnemolog.results import Model

models = typer.Typer(cls=Group, help="Change the embedding model without interrupting readers.")
app.add_typer(models, name="model")

_NAMED: Final = "Name or folder of a SentenceTransformer model"
Added = Annotated[str, typer.Argument(metavar="MODEL", help=f"{_NAMED}.")]
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
            with bar("indexing") as progress:
                opened.admin.catch_up_views(progress=progress)
        found = show.StoreLanguage(language=opened.admin.language(), changed=changed)
    answer(found, show.show_language, as_json=as_json)


@models.command("list", cls=StoreCommand)
def list_(store: Store, as_json: AsJson = False, as_csv: AsCsv = False) -> None:
    """List the models that have vectors here or were ever activated.

    Example: mnemolog model list memory/
    """
    with open_store(store, create=False) as opened:
        found = opened.models.list()
    answer(found, show.show_models, as_json=as_json, csv_of=Model if as_csv else None)


@models.command("add", cls=StoreCommand)
def add(store: Store, model: Added, dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """Build the vectors of another model, while the active one answers. An interrupted build is resumed.

    Example: mnemolog model add memory/ BAAI/bge-small-en-v1.5
    """
    with open_store(store, create=False) as opened, bar("embedding") as progress:
        report = opened.models.add(model, dry_run=dry_run, progress=progress)
    answer(report, show.show_added, as_json=as_json)
    if not report.complete:
        raise typer.Exit(EXIT_FAILED)


@models.command("activate", cls=StoreCommand)
def activate(store: Store, model: Known, as_json: AsJson = False) -> None:
    """Make a model the active one in every process. To go back, activate the former one again.

    Example: mnemolog model activate memory/ BAAI/bge-small-en-v1.5
    """
    with open_store(store, create=False) as opened, bar("catching up") as progress:
        activated = opened.models.activate(model, progress=progress)
    answer(activated, show.show_activated, as_json=as_json)


@models.command("drop", cls=StoreCommand)
def drop(
    store: Store,
    model: Known,
    dry_run: DryRun = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do it.")] = False,
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
    answer(dropped, show.show_dropped, as_json=as_json)
    if not (yes or dry_run):
        remark("nothing was removed", hint="add --yes to remove it, or --dry-run to only print it")
        raise typer.Exit(EXIT_FAILED)
