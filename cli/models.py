"""Commands on projections and models: project, rebuild, model, language."""

from __future__ import annotations

from typing import Annotated, Any, cast

import typer

from mnemolog.cli.app import EXIT_FAILED, AsJson, Group, ModelName, Store, StoreCommand, app, chosen_model, fail
from mnemolog.cli.arguments import DryRun, Yes, open_store, store_with_model
from mnemolog.cli.output import answer, console, print_list
from mnemolog.cli.progress import bar, phases
from mnemolog.defaults import DEFAULT_MODEL
from mnemolog.domain.choices import LANGUAGES, short
from mnemolog.domain.display import counted
from mnemolog.domain.errors import ModelUnavailable
from mnemolog.operations.service import Rebuildable
from mnemolog.projections.maintenance.context import RebuildReport


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
        raise ModelUnavailable(None, "without a model there is nothing to embed with (`--model none`)")
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
            progress = phase(f"rebuilding {part}")
            reports += opened.rebuild(part, dry_run=dry_run, skip_bad=skip_bad, progress=progress)
    print_build(reports, reports, as_json=as_json)


def print_build(built: Any, reports: list[RebuildReport], *, as_json: bool) -> None:
    """Print how much was built of what was expected. Exits with a failure if that is less."""
    answer(built, lambda _: _show_reports(reports), as_json=as_json)
    if not all(report.complete for report in reports):
        raise typer.Exit(EXIT_FAILED)


def _show_reports(reports: list[RebuildReport]) -> None:
    out = console()
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
def list_(store: Store, as_json: AsJson = False) -> None:
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
