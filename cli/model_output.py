"""Terminal output of models."""

from __future__ import annotations

import msgspec

from mnemolog.cli.output import console, show_rebuild
from mnemolog.domain.display import counted
from mnemolog.domain.embedding_model import short
from mnemolog.domain.language import LANGUAGES
from mnemolog.projections.maintenance.results import RebuildReport
from mnemolog.results import Model, ModelActivation, ModelDrop


class StoreLanguage(msgspec.Struct, frozen=True, kw_only=True):
    """The language of a store, and whether it was changed now."""

    language: str
    changed: bool


def show_language(found: StoreLanguage) -> None:
    """Print the language of a store."""
    name = LANGUAGES.get(found.language, found.language)
    console().line(f"{found.language} ({name}){', all turns indexed again' if found.changed else ''}")


def show_models(found: list[Model]) -> None:
    """Print a table of models, the active one marked."""
    out, rows = console(), []
    for item in found:
        activated = "" if item.activated_at is None else f"at {item.activated_at}"
        since = f"{activated}, active" if item.active else activated
        numbers = str(item.covers), f"{item.behind_events:,}", f"{item.vectors:,}"
        rows.append((item.name, short(item.fingerprint), item.state, *numbers, since))
    if rows:
        out.rows(("model", "fingerprint", "state", "to", "behind", "vectors", "activated"), rows)
    if not any(item.active for item in found):
        out.line("no model was activated: a store uses the model that it is opened with", style="dim")


def show_added(report: RebuildReport) -> None:
    """Print how much was built of what was expected."""
    show_rebuild([report])


def show_activated(item: ModelActivation) -> None:
    """Print which model is active now, and since which position."""
    word = "activated" if item.appended else "was active already, since it was activated"
    embedded = counted(item.encoded_texts, "text")
    text = f"{item.model} ({short(item.fingerprint)}) {word} at position {item.position}"
    console().line(f"{text}; its vectors go to {item.covers}, {embedded} embedded")


def show_dropped(item: ModelDrop) -> None:
    """Print what was removed, or would be."""
    word = "would remove" if item.dry_run else "removed"
    text = f"{item.model} ({short(item.fingerprint)}): {word} {counted(len(item.generations), 'generation')}"
    text += f" of {counted(item.vectors, 'vector')} and {counted(item.embeddings, 'text')} of the embedding cache"
    console().line(text)
