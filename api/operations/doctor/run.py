"""`doctor`: examine a store, say what is wrong and what it means, and mend what can be mended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from mnemolog.domain import errors
from mnemolog.infra.log.event_log import EventLog
from mnemolog.operations.doctor import checks as examination
from mnemolog.operations.doctor.fixes import Patient
from mnemolog.operations.doctor.report import Ailment, Case, Diagnosis
from mnemolog.projections.ports import Progress
from mnemolog.projections.projection_set import ProjectionSet
from mnemolog.projections.sql.snapshots import SnapshotStore


def patient(
    folder: Path,
    log: EventLog,
    opened: ProjectionSet,
    snapshots: SnapshotStore,
    progress: Progress | None,
    *,
    active: str | None = None,
) -> Patient:
    """Return a store as `examine` takes it. `active` is the fingerprint of the model that recalls use."""
    return Patient(folder, log, opened, snapshots, active, opened.has_model, progress)


def examine(patient: Patient, *, deep: bool, fix: bool) -> Diagnosis:
    """Return what is wrong with a store. With `fix`, do something about it first; the log is never touched."""
    cases = list(_cases(patient, deep=deep))
    findings = _treat(patient, cases) if fix else [case.ailment for case in cases]
    log_damaged = any(ailment.severity == "log" for ailment in findings)
    left = any(ailment.severity == "problem" and not ailment.fixed for ailment in findings)
    return Diagnosis(
        path=str(patient.folder),
        head=patient.log.head().position,
        deep=deep,
        healthy=not log_damaged and not left,
        log_damaged=log_damaged,
        findings=tuple(findings),
    )


def _cases(patient: Patient, *, deep: bool) -> Iterator[Case]:
    yield from examination.log_cases(patient, deep=deep)
    yield from examination.keys_cases(patient)
    yield from examination.views_cases(patient, deep=deep)
    yield from examination.tables_cases(patient)
    yield from examination.cache_cases(patient, deep=deep)
    yield from examination.vector_cases(patient, deep=deep)
    yield from examination.quarantine_cases(patient)
    yield from examination.leftover_cases(patient)


def _treat(patient: Patient, cases: Iterable[Case]) -> list[Ailment]:
    """Apply the remedies, those for the end last, and return the ailments in the order they came in."""
    numbered = list(enumerate(cases))
    done: dict[int, Ailment] = {}
    # What this process has open may be what is renamed: it is opened again when it is needed.
    patient.let_go()
    for number, case in sorted(numbered, key=lambda item: item[1].last):
        done[number] = _treated(case)
    patient.let_go()
    return [done[number] for number, _ in numbered]


def _treated(case: Case) -> Ailment:
    if case.remedy is None:
        return case.ailment
    try:
        outcome = case.remedy()
    except errors.MnemologError as error:
        return msgspec.structs.replace(case.ailment, outcome=f"{error}; {error.hint}" if error.hint else str(error))
    return msgspec.structs.replace(case.ailment, fixed=True, outcome=outcome)
