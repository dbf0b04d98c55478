"""The generations on disk and their states: read from manifests, without FAISS."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from mnemolog.domain import errors
from mnemolog.domain.hints import ANY_MODEL, Hint, remedy, with_model
from mnemolog.domain.position import ORIGIN, Position
from mnemolog.domain.result import Result
from mnemolog.projections.ports import Log
from mnemolog.projections.quarantine import LOST_HISTORY, NOTHING_TO_DO, Actions, Drift, size_of
from mnemolog.projections.vectors.folders import (
    MANIFEST_FILE,
    Manifest,
    SegmentState,
    covered_by,
    generation_folders,
    next_of_chain,
    prefix_of,
    range_of,
    read_manifest,
    segment_folders,
    state_of,
    why_size_invalid,
)

LOOKS_MAX: Final = 3
"""How often a folder is listed again because segments were merged meanwhile."""

_FIX: Final = remedy("admin.doctor", fix=True)
_LOST: Final = Hint(
    *("Run ", remedy("verify"), ", find out what happened to log.db and restore the newest copy of it; "),
    *("to give up what the log has lost, run ", _FIX, "."),
)
_ONLY_NEW: Final = "the model embeds only texts without stored vectors."

ACTIONS: Final[Actions] = {
    Drift.CURRENT: NOTHING_TO_DO,
    Drift.BEHIND: Hint(
        remedy("admin.catch_up_vectors", with_model=ANY_MODEL), " makes the missing vectors; ", _ONLY_NEW
    ),
    Drift.AHEAD: _LOST,
    Drift.OTHER_LOG: Hint("Carry it to the store it is from, or run ", _FIX, " to move it to quarantine."),
    Drift.DIVERGED: _LOST,
    Drift.DAMAGED: Hint(
        remedy("admin.doctor", fix=True, with_model=ANY_MODEL),
        " moves the damaged segments to quarantine and embeds the texts whose vectors they lost.",
    ),
    Drift.MISSING: Hint(remedy("rebuild", "vectors", with_model=ANY_MODEL), " builds them; ", _ONLY_NEW),
    Drift.OTHER_MODEL: "Nothing to do: it is kept for going back to that model.",
    Drift.REPLACED: Hint("It is not needed: ", _FIX, " moves it to quarantine."),
}
"""What to do about each state of a generation."""

Validate = Callable[[Path, Manifest], str | None]
"""Returns why the files of a segment do not match its manifest; None if they do."""


class UnusedSegment(Result, frozen=True, kw_only=True):
    """A segment that no search uses."""

    name: str
    state: str
    """`usable` if other segments cover its range, or if there is a gap before it."""
    why: str
    covered: bool
    """Whether the log has the events that it was built from."""


class SkippedTurn(Result, frozen=True, kw_only=True):
    """A turn that the model refused. It has no vector; text recall finds it."""

    position: Position
    why: str


class GenerationStatus(Result, frozen=True, kw_only=True):
    """One model's vectors, as their manifests and the sizes of their files describe them."""

    generation: str
    """Empty for the active model when it has none."""
    model: str
    fingerprint: str
    recipe: str
    """The recipe that renders turns as texts to embed."""
    state: str
    """A state of `mnemolog.projections.quarantine`."""
    action: str
    """What to do."""
    covers: Position
    """The last position that the segments cover."""
    behind_events: int
    vectors: int
    segments: int
    """Segments that searches use."""
    bytes: int
    """Total size of its files."""
    skipped: tuple[SkippedTurn, ...] = ()
    unused: tuple[UnusedSegment, ...] = ()


class FoundSegment(NamedTuple):
    """A segment on disk, and whether it is usable with this log."""

    folder: Path
    manifest: Manifest | None
    state: SegmentState
    why: str
    covered: bool
    """Whether the log has the events that it was built from."""

    @property
    def range(self) -> tuple[Position, Position] | None:
        """The positions `(after, upto]`, from the manifest or else from the name."""
        return range_of(self.folder) if self.manifest is None else (self.manifest.after, self.manifest.upto)


class FoundGeneration(NamedTuple):
    """A generation on disk."""

    folder: Path
    serial: int
    segments: tuple[FoundSegment, ...]
    chain: tuple[FoundSegment, ...]
    """The segments that searches use: from 0 on, each begins where the one before ends."""
    replaced: bool
    """Whether a newer generation of the same model is in use."""

    @property
    def prefix(self) -> str:
        """The fingerprint prefix, from the name."""
        return self.folder.name.split("-")[0]

    @property
    def tag(self) -> Manifest | None:
        """The manifest that describes the generation: that of its newest segment in use, or else of any segment."""
        manifests = [segment.manifest for segment in self.chain or self.segments if segment.manifest is not None]
        return manifests[-1] if manifests else None

    @property
    def model(self) -> str:
        """The name of its model; empty if no manifest is readable."""
        tag = self.tag
        return tag.model if tag else ""

    @property
    def covers(self) -> Position:
        """The position where the segments in use end."""
        return self.chain[-1].manifest.upto if self.chain and self.chain[-1].manifest else ORIGIN

    def state(self, head: Position) -> Drift:
        """Return its state, independently of other generations."""
        states = {segment.state for segment in self.segments}
        # Evidence against the log comes first, however much of the generation is usable.
        for worth in (SegmentState.AHEAD, SegmentState.DIVERGED, SegmentState.OTHER_LOG):
            if worth in states:
                return Drift(worth.value)
        if self.replaced:
            return Drift.REPLACED
        if any(self._is_missed(segment) for segment in self.segments):
            return Drift.DAMAGED
        return Drift.BEHIND if self.covers < head else Drift.CURRENT

    def _is_missed(self, segment: FoundSegment) -> bool:
        # A damaged segment whose positions others cover is no loss: it stays until it is quarantined.
        unfit = segment.state in (SegmentState.DAMAGED, SegmentState.OTHER_MODEL)
        return unfit and (segment.range is None or segment.range[1] > self.covers)


def survey(root: Path, log: Log, *, validate: Validate = why_size_invalid) -> list[FoundGeneration]:
    """Return every generation below `root`. For each model, the newest one with usable segments is in use."""
    found: list[FoundGeneration] = []
    newest: dict[str, int] = {}
    for prefix, serial, folder in reversed(generation_folders(root)):
        segments = tuple(_segments(folder, log, validate))
        chain = _chain(segments)
        found.append(FoundGeneration(folder, serial, segments, chain, replaced=serial < newest.get(prefix, 0)))
        if chain:
            newest.setdefault(prefix, serial)
    return found[::-1]


def generations(root: Path, log: Log, *, active: str | None = None) -> list[GenerationStatus]:
    """Return the state of every generation below `root`.

    `active` is the fingerprint of the model that recalls use; those of others are then `other-model`, and the
    active one is `missing` if it has none. With None, each generation is judged independently.
    """
    found, head = survey(root, log), log.head().position
    statuses = [_status(item, head=head, active=active) for item in found]
    if active is not None and head > ORIGIN and not any(_is_of(item, active) for item in found):
        statuses.append(
            GenerationStatus(
                generation="",
                model="",
                fingerprint=active,
                recipe="",
                state=Drift.MISSING.value,
                action=action_of(Drift.MISSING, ""),
                covers=ORIGIN,
                behind_events=head,
                vectors=0,
                segments=0,
                bytes=0,
            )
        )
    return statuses


def _is_of(generation: FoundGeneration, fingerprint: str) -> bool:
    return generation.prefix == prefix_of(fingerprint)


def _status(found: FoundGeneration, *, head: Position, active: str | None) -> GenerationStatus:
    used = [segment.manifest for segment in found.chain if segment.manifest is not None]
    tag = found.tag
    state = found.state(head)
    covers = found.covers
    of_other_model = active is not None and not _is_of(found, active)
    if of_other_model and state not in LOST_HISTORY | {Drift.OTHER_LOG}:
        state = Drift.OTHER_MODEL
    return GenerationStatus(
        generation=found.folder.name,
        model=found.model,
        fingerprint=tag.fingerprint if tag else found.prefix,
        recipe=tag.recipe if tag else "",
        state=state.value,
        action=action_of(state, found.model),
        covers=covers,
        behind_events=max(0, head - covers),
        vectors=sum(manifest.vectors for manifest in used),
        segments=len(found.chain),
        bytes=size_of(found.folder),
        skipped=tuple(
            SkippedTurn(position=item.position, why=item.why) for manifest in used for item in manifest.skipped
        ),
        unused=tuple(_unused(found)),
    )


def name_in_quarantine(quarantine: Path, fingerprint: str) -> str:
    """Return the name of a model from its segments in quarantine, if no segment is left; empty if it is unknown."""
    for manifest in sorted(quarantine.glob(f"*/{MANIFEST_FILE}"), reverse=True):
        try:
            tag = read_manifest(manifest.parent)
        except errors.ProjectionUnreadable:
            continue
        if tag.fingerprint.startswith(fingerprint):
            return tag.model
    return ""


def action_of(state: Drift, model: str) -> str:
    """Return what to do about a state of the vectors of a model, whose name is empty if it is unknown."""
    return with_model(ACTIONS[state], model)


def _unused(found: FoundGeneration) -> Iterable[UnusedSegment]:
    for segment in found.segments:
        if segment in found.chain:
            continue
        why = segment.why
        if segment.state is SegmentState.USABLE:
            span = segment.range
            why = "other segments cover its offsets" if span and span[1] <= found.covers else "nothing leads up to it"
        yield UnusedSegment(name=segment.folder.name, state=segment.state.value, why=why, covered=segment.covered)


def _segments(folder: Path, log: Log, validate: Validate) -> Sequence[FoundSegment]:
    found: list[FoundSegment] = []
    for _ in range(LOOKS_MAX):
        seen = [look(part, log, validate) for part in segment_folders(folder)]
        found = [segment for segment in seen if segment is not None]
        # A segment that vanished was merged into a new one: list again, or both would be missed.
        if len(found) == len(seen):
            break
    return found


def look(part: Path, log: Log, validate: Validate = why_size_invalid) -> FoundSegment | None:
    """Examine one segment; None if it has vanished meanwhile."""
    span = range_of(part)
    try:
        manifest = read_manifest(part)
    except errors.ProjectionUnreadable as error:
        covered = span is not None and covered_by(log, span)
        return FoundSegment(part, None, SegmentState.DAMAGED, error.cause, covered) if part.exists() else None
    state, why = state_of(manifest, log=log, fingerprint=None), ""
    covered = state is SegmentState.USABLE
    match state:
        case SegmentState.OTHER_LOG:
            why = f"it is of log {manifest.log_id}"
        case SegmentState.AHEAD:
            why = f"it reaches to {manifest.upto}, the log to {log.head().position}: the log has lost history"
        case SegmentState.DIVERGED:
            why = f"the log's digest at {manifest.upto} is another: the log's history was changed"
        case _ if not manifest.fingerprint.startswith(part.parent.name.split("-")[0]):
            state, why = (
                SegmentState.OTHER_MODEL,
                f"it is of model {manifest.model!r} {prefix_of(manifest.fingerprint)}",
            )
        case _ if span != (manifest.after, manifest.upto):
            state, why = SegmentState.DAMAGED, "its name and its manifest have different positions"
        case _ if invalid := validate(part, manifest):
            state, why = SegmentState.DAMAGED, invalid
    return FoundSegment(part, manifest, state, why, covered) if part.exists() else None


def _chain(segments: Iterable[FoundSegment]) -> tuple[FoundSegment, ...]:
    """Return the segments to use: from 0 on, always the longest that begins where the one before ends."""
    usable = [(s.manifest, s) for s in segments if s.state is SegmentState.USABLE and s.manifest is not None]
    chain: list[FoundSegment] = []
    reached = ORIGIN
    while (following := next_of_chain(usable, reached)) is not None:
        manifest, segment = following
        chain.append(segment)
        reached = manifest.upto
    return tuple(chain)
