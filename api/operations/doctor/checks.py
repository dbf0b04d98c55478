"""What is wrong with a store, or worth knowing: one function for each part of it. Nothing is changed here."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from mnemolog.audit import verification
from mnemolog.domain import errors
from mnemolog.domain.position import Position
from mnemolog.domain.store_layout import StoreLayout
from mnemolog.infra.keys.keys_file import KEYS_FILE
from mnemolog.operations.doctor import fixes as remedies
from mnemolog.operations.doctor.fixes import Patient
from mnemolog.operations.doctor.report import Ailment, Case
from mnemolog.operations.status import PRESENT, broken, caches, tables, views_status
from mnemolog.projections.drift import LOST_HISTORY, TABLE, Drift, action
from mnemolog.projections.health import stale_files
from mnemolog.projections.health.verify import quick_verify
from mnemolog.projections.quarantine import BYTES_MAX, ITEMS_MAX, Quarantine
from mnemolog.projections.sql.database import faults_of
from mnemolog.projections.sql.opening import opened
from mnemolog.projections.vectors.inventory import FoundGeneration, FoundSegment, Validate, generations, survey
from mnemolog.projections.vectors.manifest import SegmentState, why_size_invalid

_LOG_ACTION: Final = (
    "Stop writing, keep log.db as it is, find the extent with `mnemolog verify DIR`, and restore the newest copy "
    "that verifies."
)
_LOG_MATTERS: Final = "The log is the truth. What it has lost, nothing here can make anew."
_FULL_MATTERS: Final = "While it is full nothing is set aside: damaged parts stay where they are, unused."


def log_cases(patient: Patient, *, deep: bool) -> Iterator[Case]:
    """Yield what is wrong with the log: by its ends and witnesses, or with `deep` by every event."""
    if deep:
        # What is encrypted is opened as well, as far as there are keys for it.
        found = verification.verify_store(
            patient.folder,
            patient.log,
            contents=_keys_trouble(patient) is None,
            progress=patient.progress,
        )
        findings = list(found.findings)
    else:
        findings = quick_verify(patient.log, verification.witnesses_of(patient.folder, patient.log))
    for finding in findings:
        yield Case(
            Ailment(
                what="log",
                where=f"{patient.log.path.name} at {finding.position}",
                state=finding.kind.value,
                severity="log",
                why=finding.detail,
                matters=_LOG_MATTERS,
                action=_LOG_ACTION,
                fixable=False,
            )
        )


def keys_cases(patient: Patient) -> Iterator[Case]:
    """Yield what keeps the content of the log from being read."""
    if (trouble := _keys_trouble(patient)) is not None:
        yield Case(
            Ailment(
                what="keys",
                where=KEYS_FILE,
                state=Drift.MISSING.value,
                severity="problem",
                why=str(trouble),
                matters="Content can be neither read nor recorded. Nothing is lost, and nothing counts as forgotten.",
                action="Put the store's own keys.db back beside log.db, from its newest backup.",
                fixable=False,
            )
        )


def _keys_trouble(patient: Patient) -> errors.KeysMissing | None:
    try:
        if patient.log.keyring is not None:
            patient.log.keyring.secret()
    except errors.KeysMissing as error:
        return error
    return None


def views_cases(patient: Patient, *, deep: bool) -> Iterator[Case]:
    """Yield what is wrong with the views, with `deep` by comparing every row with the log."""
    path = StoreLayout(patient.folder).views
    status, _, _ = views_status(path, patient.log)
    state, why, aside = Drift(status.state), status.why, True
    if state in (Drift.CURRENT, Drift.BEHIND) and deep and _keys_trouble(patient) is None:
        state, why, aside = _compared(patient, path, status.position, state)
    match state:
        case Drift.CURRENT:
            return
        case Drift.BEHIND | Drift.MISSING if status.behind_events == 0:
            return
        case Drift.BEHIND | Drift.MISSING:
            why, remedy = f"{status.behind_events} events behind", partial(remedies.bring_views_up, patient)
        case Drift.UNREADABLE:
            yield Case(_views_ailment(patient, path, state, why, fixable=False))
            return
        case _:
            why = why or f"they have read to {status.position}, the log ends at {patient.log.head().position}"
            remedy = partial(remedies.make_views_anew, patient, aside=aside, why=why, state=state.value)
    yield Case(_views_ailment(patient, path, state, why, fixable=True), remedy)


def tables_cases(patient: Patient) -> Iterator[Case]:
    """Yield what is wrong with the tables that frameworks read. What reads on by itself is none."""
    for status in tables(patient.projections, patient.log):
        path, state = patient.projections / status.name, Drift(status.state)
        if state in (Drift.CURRENT, Drift.BEHIND, Drift.MISSING):
            continue
        why = status.why or f"they have read to {status.position}, the log ends at {patient.log.head().position}"
        fixable = state is not Drift.UNREADABLE
        ailment = Ailment(
            what="tables",
            where=patient.named(path),
            state=state.value,
            severity="log" if state in LOST_HISTORY else "problem",
            why=why,
            matters=TABLE[state].means,
            action=action("tables", state),
            fixable=fixable,
        )
        remedy = partial(remedies.set_database_aside, patient, path, why=why, state=state.value)
        yield Case(ailment, remedy if fixable else None)


def cache_cases(patient: Patient, *, deep: bool) -> Iterator[Case]:
    """Yield what is wrong with embedding cache and snapshots, with `deep` row by row."""
    for status in caches(patient.projections):
        path, state, why = patient.projections / status.name, status.state, status.why
        keys: list[tuple[Any, ...]] = []
        if deep and state == PRESENT:
            state, why, keys = _audited(patient, path)
        if state in (PRESENT, Drift.MISSING):
            continue
        remedy = None
        if keys:
            remedy = partial(remedies.delete_rows, patient, path, keys)
        elif state == Drift.DAMAGED:
            remedy = partial(remedies.set_database_aside, patient, path, why=why, state=state)
        ailment = Ailment(
            what="cache",
            where=patient.named(path),
            state=state,
            severity="problem",
            why=why,
            matters=TABLE[Drift(state)].means,
            action=action("cache", Drift(state)),
            fixable=remedy is not None,
        )
        yield Case(ailment, remedy)


def vector_cases(patient: Patient, *, deep: bool) -> Iterator[Case]:
    """Yield what is wrong with the vectors of every model, with `deep` by every byte of every file."""
    validate = _bytes_validator(patient) if deep else why_size_invalid
    head = patient.log.head().position
    for generation in survey(patient.vectors, patient.log, validate=validate):
        state = generation.state(head)
        if state is Drift.REPLACED:
            yield _replaced(patient, generation)
            continue
        for segment in generation.segments:
            if segment not in generation.chain:
                yield from _unused(patient, generation, segment, validate)
        others = patient.active is not None and not patient.active.startswith(generation.prefix)
        if generation.covers < head and not others:
            behind = f"{head - generation.covers} events behind"
            yield _to_be_made(patient, generation.folder, generation.prefix, Drift.BEHIND, behind)
    for status in generations(patient.vectors, patient.log, active=patient.active):
        if status.state == Drift.MISSING:
            why = "the active model has no vectors"
            yield _to_be_made(patient, patient.vectors, status.fingerprint, Drift.MISSING, why)


def quarantine_cases(patient: Patient) -> Iterator[Case]:
    """Yield a quarantine that is full, or on its way there."""
    status = Quarantine(StoreLayout(patient.folder).quarantine).status()
    if not status.full and 2 * status.items < ITEMS_MAX and 2 * status.bytes < BYTES_MAX:
        return
    yield Case(
        Ailment(
            what="quarantine",
            where=patient.named(StoreLayout(patient.folder).quarantine),
            state="full" if status.full else "large",
            severity="problem" if status.full else "note",
            why=f"{status.items} of {ITEMS_MAX} items, {status.bytes:,} of {BYTES_MAX:,} bytes",
            matters=_FULL_MATTERS,
            action=status.action,
            fixable=False,
        )
    )


def leftover_cases(patient: Patient) -> Iterator[Case]:
    """Yield what processes that died have left."""
    for listed, state in ((stale_files.abandoned, "abandoned"), (stale_files.stale_notes, "stale")):
        for item in listed(patient.projections):
            ailment = Ailment(
                what="leftover",
                where=patient.named(item.path),
                state=state,
                severity="problem" if state == "abandoned" else "note",
                why=item.why,
                matters="It takes up space." if state == "abandoned" else "It names somebody who is not at work.",
                action="`mnemolog doctor DIR --fix` removes it.",
                fixable=True,
            )

            def still(path: Path = item.path, listed: Any = listed) -> bool:
                return any(other.path == path for other in listed(patient.projections))

            yield Case(ailment, partial(remedies.remove_leftover, patient, item.path, still=still))


def _views_ailment(patient: Patient, path: Path, state: Drift, why: str, *, fixable: bool) -> Ailment:
    harmless = state in (Drift.BEHIND, Drift.MISSING)
    return Ailment(
        what="views",
        where=patient.named(path),
        state=state.value,
        severity="log" if state in LOST_HISTORY else "note" if harmless else "problem",
        why=why,
        matters=TABLE[state].means,
        action=action("views", state),
        fixable=fixable,
    )


def _compared(patient: Patient, path: Path, upto: Position, state: Drift) -> tuple[Drift, str, bool]:
    """Return the state of views by their content, why, and whether the file itself is of no use."""
    from mnemolog.projections.health import views_audit

    try:
        with opened(path) as database, database.reading() as connection:
            found = views_audit.compare(connection, patient.log, upto=upto, progress=patient.progress)
    except errors.ProjectionUnreadable as error:
        return broken(error), error.cause, True
    return (Drift.DAMAGED, str(found), found.file_damaged) if found.count else (state, "", True)


def _audited(patient: Patient, path: Path) -> tuple[str, str, list[tuple[Any, ...]]]:
    from mnemolog.projections.health import rows_audit

    try:
        with opened(path) as database:
            with database.reading() as connection:
                if faults := faults_of(connection):
                    return Drift.DAMAGED.value, "; ".join(faults), []
            keys = rows_audit.invalid_rows(database, progress=patient.progress)
    except errors.ProjectionUnreadable as error:
        return broken(error).value, error.cause, []
    return (Drift.DAMAGED.value, f"{len(keys)} rows do not fit their checksum", keys) if keys else (PRESENT, "", [])


def _bytes_validator(patient: Patient) -> Validate:
    """Return a check of every byte of a segment against its manifest."""
    from mnemolog.projections.vectors import deep_check

    return partial(deep_check.why_bytes_invalid, progress=patient.progress)


def _replaced(patient: Patient, generation: FoundGeneration) -> Case:
    why = "a newer generation of the same model answers"
    state = Drift.REPLACED
    ailment = _vector_ailment(patient, generation.folder, state, why, severity="note", fixable=True)
    remedy = partial(remedies.set_generation_aside, patient, generation.folder, why=why, state=state.value)
    return Case(ailment, remedy)


def _unused(patient: Patient, generation: FoundGeneration, segment: FoundSegment, validate: Validate) -> Iterator[Case]:
    span = segment.range
    covered = span is not None and span[1] <= generation.covers
    if segment.state is SegmentState.USABLE and not covered:
        return  # Nothing leads up to it yet: what is damaged before it may be made anew.
    usable = segment.state is SegmentState.USABLE
    why = segment.why or "other segments cover its offsets"
    state = Drift.REPLACED if usable else Drift(segment.state.value)
    ailment = _vector_ailment(
        patient, segment.folder, state, why, severity="note" if usable else "problem", fixable=True
    )
    yield Case(ailment, partial(remedies.set_segment_aside, patient, segment, validate=validate, why=why))


def _to_be_made(patient: Patient, where: Path, prefix: str, state: Drift, why: str) -> Case:
    severity = "problem" if state is Drift.MISSING else "note"
    ailment = _vector_ailment(patient, where, state, why, severity=severity, fixable=patient.has_model)
    return Case(ailment, partial(remedies.catch_up_vectors, patient, prefix) if patient.has_model else None, last=True)


def _vector_ailment(patient: Patient, where: Path, state: Drift, why: str, *, severity: Any, fixable: bool) -> Ailment:
    # A segment in the folder of another model is as misplaced as a damaged one is useless: the same is done.
    shown = Drift.DAMAGED if state is Drift.OTHER_MODEL else state
    return Ailment(
        what="vectors",
        where=patient.named(where),
        state=state.value,
        severity=severity,
        why=why,
        matters=TABLE[state].means,
        action=action("vectors", shown),
        fixable=fixable,
    )
