"""Terminal output of models."""

from __future__ import annotations

from mnemolog.cli.output import console, counted, show_rebuild, table_of
from mnemolog.domain.embedding_model import short
from mnemolog.projections.registry.results import RebuildReport
from mnemolog.results import Model, ModelActivation, ModelDrop


def show_models(found: list[Model]) -> None:
    """Print a table of models, the active one marked."""
    from rich.markup import escape

    out, shown = console(), table_of("model", "fingerprint", "state", "to", "behind", "vectors", "activated")
    for item in found:
        activated = "" if item.activated_at is None else f"at {item.activated_at}"
        shown.add_row(
            escape(item.name),
            short(item.fingerprint),
            item.state,
            str(item.covers),
            str(item.behind_events),
            str(item.vectors),
            f"{activated}, active" if item.active else activated,
        )
    if found:
        out.print(shown)
    if not any(item.active for item in found):
        out.print("no model was activated: a store uses the model that it is opened with", style="dim")


def show_added(report: RebuildReport) -> None:
    """Print how much was built of what was expected."""
    show_rebuild([report])


def show_activated(item: ModelActivation) -> None:
    """Print which model is active now, and since which position."""
    word = "activated" if item.appended else "was active already, since it was activated"
    embedded = counted(item.encoded_texts, "text")
    text = f"{item.model} ({short(item.fingerprint)}) {word} at position {item.position}"
    console().print(f"{text}; its vectors go to {item.covers}, {embedded} embedded", markup=False)


def show_dropped(item: ModelDrop) -> None:
    """Print what was removed, or would be."""
    word = "would remove" if item.dry_run else "removed"
    text = f"{item.model} ({short(item.fingerprint)}): {word} {counted(len(item.generations), 'generation')}"
    text += f" of {counted(item.vectors, 'vector')} and {counted(item.embeddings, 'text')} of the embedding cache"
    console().print(text, markup=False)
