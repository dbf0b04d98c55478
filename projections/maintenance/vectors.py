"""The vectors of all models, in generations of segments."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Final

import msgspec

from mnemolog.domain import errors
from mnemolog.domain.choices import MODELS_STREAM, evolve_names
from mnemolog.domain.display import counted
from mnemolog.domain.events import TurnRecorded
from mnemolog.domain.store_layout import StoreLayout
from mnemolog.domain.values import Position
from mnemolog.projections.maintenance.context import (
    Forgotten,
    Issue,
    IssueWithFix,
    RebuildReport,
    Severity,
    StoreContext,
    indexers_locked_out,
)
from mnemolog.projections.ports import Progress, StoreLog, tell
from mnemolog.projections.projector import Indexing
from mnemolog.projections.quarantine import MEANS, Drift, identity
from mnemolog.projections.sql.database import ProjectionDatabase
from mnemolog.projections.sql.opening import open_engine
from mnemolog.projections.vectors.folders import (
    FoundGeneration,
    FoundSegment,
    GenerationStatus,
    Rebuilt,
    SegmentState,
    Validate,
    action_of,
    generation_folders,
    generations,
    log_range_of,
    look,
    name_in_quarantine,
    prefix_of,
    segment_folders,
    survey,
    why_size_invalid,
)

PASSES_MAX: Final = 20
"""Retries of a catch-up after a merge has found a damaged segment."""
INDEXER_WAIT_S: Final = 10.0
"""How long a requested catch-up waits for another process that embeds."""


class VectorGenerations:
    """The folder of all vectors."""

    name = "vectors"

    def status(self, context: StoreContext) -> list[GenerationStatus]:
        """Return the state of every generation."""
        found = generations(context.layout.vectors, context.log, active=context.active)
        return [status if status.model else _named(context, status) for status in found]

    def check(self, context: StoreContext, *, deep: bool) -> Iterator[IssueWithFix]:
        """Yield what is wrong with the vectors of every model, with `deep` by every byte of every file."""
        validate = _why_bytes_invalid(context) if deep else why_size_invalid
        head = context.log.head().position
        for generation in survey(context.layout.vectors, context.log, validate=validate):
            if generation.state(head) is Drift.REPLACED:
                yield _replaced(context, generation)
                continue
            for segment in generation.segments:
                if segment not in generation.chain:
                    yield from _unused(context, generation, segment, validate)
            of_another = context.active is not None and not context.active.startswith(generation.prefix)
            if generation.covers < head and not of_another:
                behind = f"{counted(head - generation.covers, 'event')} behind"
                name = generation.model or _name(context, generation.prefix)
                yield _to_build(context, generation.folder, generation.prefix, Drift.BEHIND, behind, name)
        for status in self.status(context):
            if status.state == Drift.MISSING:
                why = "the active model has no vectors"
                yield _to_build(context, context.layout.vectors, status.fingerprint, Drift.MISSING, why, status.model)

    def rebuild(self, context: StoreContext, *, upto: Position, skip_bad: bool) -> Rebuilt:
        """Build a new generation for the active model. Raises `ModelUnavailable`, `EncodingFailed`, `IndexerBusy`."""
        return (
            context.projections.vectors().projection().rebuild(upto=upto, skip_bad=skip_bad, progress=context.progress)
        )

    def to_encode(self, context: StoreContext, *, upto: Position) -> int:
        """Return how many texts a rebuild would call the model for."""
        return context.projections.vectors().projection().missing(upto=upto)

    def purge(self, context: StoreContext, forgotten: Forgotten) -> bool:
        """Remove forgotten turns from every segment. Raises `IndexerBusy`."""
        if context.layout.vectors.exists():
            from mnemolog.projections.vectors.turn_vectors import purge  # It needs FAISS.

            purge(
                context.layout.vectors,
                context.log,
                forgotten(),
                salvage=partial(_salvage, context),
            )
        return True

    def backup_paths(self, layout: StoreLayout) -> list[Path]:
        """Return the folders of all segments."""
        return [part for folder in generation_folders(layout.vectors) for part in segment_folders(folder.path)]


def catch_up_vectors(log: StoreLog, indexing: Indexing, *, progress: Progress | None = None) -> RebuildReport:
    """Embed new turns and write them to disk. Turns before a text that the model refuses are written too.

    Raises `IndexerBusy` when another process embeds and does not end in time, `ModelUnavailable`, `EncodingFailed`.
    """
    started = perf_counter()
    upto = log.head().position
    before = indexing.covers()
    expected = log.count(topic=TurnRecorded.topic, after=before, upto=upto)
    encoded = 0
    for _ in range(PASSES_MAX):
        try:
            encoded += indexing.bring_up(
                upto,
                stop=lambda: False,
                wait_s=INDEXER_WAIT_S,
                moved=lambda at: tell(progress, at - before, upto - before),
            )
        finally:
            indexing.write(new_since=before if expected else None)
        if (covers := indexing.covers()) >= upto:
            break
    return RebuildReport(
        projection="vectors",
        dry_run=False,
        upto=covers,
        expected_turns=expected,
        built_turns=log.count(topic=TurnRecorded.topic, after=before, upto=min(covers, upto)),
        encoded_texts=encoded,
        seconds=perf_counter() - started,
    )


def _why_bytes_invalid(context: StoreContext) -> Validate:
    """Return a check of every byte of a segment against its manifest."""
    from mnemolog.projections.vectors.turn_vectors import why_bytes_invalid  # It needs numpy and FAISS.

    return partial(why_bytes_invalid, progress=context.progress)


def _named(context: StoreContext, status: GenerationStatus) -> GenerationStatus:
    """Return the state of a generation whose segments are all gone, with the name of its model if it is known."""
    name = _name(context, status.fingerprint)
    return msgspec.structs.replace(status, model=name, action=action_of(Drift(status.state), name))


def _name(context: StoreContext, fingerprint: str) -> str:
    """Return the name of a model without segments: from quarantine, or from its activation; empty if it is unknown."""
    activated = context.log.fold(MODELS_STREAM, evolve_names).state or {}
    named = (name for known, name in activated.items() if known.startswith(fingerprint))
    return name_in_quarantine(context.layout.quarantine, fingerprint) or next(named, "")


def _replaced(context: StoreContext, generation: FoundGeneration) -> IssueWithFix:
    why, state = "a newer generation of the same model answers", Drift.REPLACED
    issue = _issue(context, generation.folder, state, why, generation.model, severity="note", fixable=True)
    return IssueWithFix(issue, partial(_quarantine_generation, context, generation.folder, why=why, state=state.value))


def _unused(
    context: StoreContext, generation: FoundGeneration, segment: FoundSegment, validate: Validate
) -> Iterator[IssueWithFix]:
    span = segment.range
    covered = span is not None and span[1] <= generation.covers
    usable = segment.state is SegmentState.USABLE
    if usable and not covered:
        return  # It is not connected yet: a damaged segment before it may be rebuilt.
    why = segment.why or "other segments cover its offsets"
    state = Drift.REPLACED if usable else Drift(segment.state.value)
    severity: Severity = "note" if usable else "problem"
    issue = _issue(context, segment.folder, state, why, generation.model, severity=severity, fixable=True)
    if segment.state is SegmentState.DAMAGED and not covered and span is not None:
        texts = counted(context.log.count(topic=TurnRecorded.topic, after=span[0], upto=span[1]), "text")
        cost = f"{issue.matters} The model has to embed up to {texts} of it again."
        issue = msgspec.structs.replace(issue, matters=cost)
    yield IssueWithFix(issue, partial(_quarantine_segment, context, segment, validate=validate, why=why))


def _to_build(context: StoreContext, where: Path, prefix: str, state: Drift, why: str, model: str) -> IssueWithFix:
    severity: Severity = "problem" if state is Drift.MISSING else "note"
    has_model = context.projections.has_model
    issue = _issue(context, where, state, why, model, severity=severity, fixable=has_model)
    return IssueWithFix(issue, partial(_catch_up, context, prefix) if has_model else None, last=True)


def _issue(
    context: StoreContext, where: Path, state: Drift, why: str, model: str, *, severity: Severity, fixable: bool
) -> Issue:
    # A segment in the folder of another model is as unusable as a damaged one: the same is done.
    shown = Drift.DAMAGED if state is Drift.OTHER_MODEL else state
    return Issue(
        what="vectors",
        where=context.named(where),
        state=state.value,
        severity=severity,
        why=why,
        matters=MEANS[state],
        action=action_of(shown, model),
        fixable=fixable,
    )


def _quarantine_segment(context: StoreContext, segment: FoundSegment, *, validate: Validate, why: str) -> str:
    """Move a segment to quarantine, if its state is still the same while no process writes vectors."""
    with indexers_locked_out(context.layout.vectors):
        judged = identity(segment.folder)
        now = look(segment.folder, context.log, validate)
        if now is None or now.state is not segment.state:
            return "nothing to do: it has been replaced meanwhile"
        if segment.state is SegmentState.DAMAGED:
            _salvage(context, segment.folder)
        moved = context.quarantine.add(
            segment.folder,
            reason=why,
            state=segment.state.value,
            judged=judged,
            built_from=log_range_of(segment.folder),
        )
        return context.quarantined(segment.folder, moved)


def _salvage(context: StoreContext, folder: Path) -> None:
    """Store the undamaged vectors of a segment in the embedding cache."""
    from mnemolog.projections.vectors.turn_vectors import salvage  # It needs numpy and FAISS.

    path = context.layout.embeddings
    engine = open_engine(path, busy_timeout_s=context.log.busy_timeout_s)
    try:
        salvage(folder, context.log, ProjectionDatabase(engine, path))
    finally:
        engine.dispose()


def _quarantine_generation(context: StoreContext, folder: Path, *, why: str, state: str) -> str:
    with indexers_locked_out(context.layout.vectors):
        return context.quarantined(folder, context.quarantine.add(folder, reason=why, state=state))


def _catch_up(context: StoreContext, prefix: str) -> str:
    """Bring the vectors of the store's model up to date; the model embeds only texts without stored vectors."""
    vectors = context.projections.vectors()
    if vectors.fingerprint[: len(prefix)] != prefix:
        raise errors.ModelMismatch(built_with=prefix, asked_with=prefix_of(vectors.fingerprint))
    report = catch_up_vectors(context.log, context.projections.indexing, progress=context.progress)
    turns, texts = counted(report.built_turns, "turn"), counted(report.encoded_texts, "text")
    return f"now up to {report.upto}: {turns}, {texts} embedded by the model"
