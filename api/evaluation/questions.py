"""Questions whose answers are known, read from a file of JSON lines or given as dicts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import sqlalchemy as sa

from mnemolog.domain import errors
from mnemolog.domain.decoding import UNDECODABLE
from mnemolog.domain.limits import quoted
from mnemolog.domain.position import Position
from mnemolog.domain.scope import Scopes, covered
from mnemolog.infra.runtime.regular_files import read_file
from mnemolog.projections.recall.question import Mode, Question, question
from mnemolog.projections.sql import queries
from mnemolog.projections.sql.queries import KeyedTurn

FILE_BYTES_MAX: Final = 256 << 20


class KnownQuestion(NamedTuple):
    """A question, and the turns that answer it."""

    question: Question
    evidence: frozenset[Position]
    """Empty if nothing answers it."""
    category: str = ""
    as_of: Position | None = None
    """The position to recall as of; None for the present."""


class _Line(msgspec.Struct):
    question: str
    evidence: list[str | int]
    scope: str = ""
    session: str | None = None
    category: str | None = None
    evidence_session: str | None = None
    """The session whose turns the keys name, where several sessions have the same keys."""


# Made at import: `mnemolog.projections.sql.checked_json` has the reason.
_DECODER: Final = msgspec.json.Decoder(_Line)
_NO_EVIDENCE: Final = "; give `evidence` as a list of keys or positions of turns, [] if nothing answers the question"


def read_questions(
    source: Path | Iterable[Mapping[str, Any]], connection: sa.Connection, *, k: int, mode: Mode
) -> list[KnownQuestion]:
    """Return the questions of a file, or of dicts with the same fields, each for `k` hits.

    Raises `InvalidInput`, with the number of the line, for what is no question and for evidence that is no turn.
    """
    lines = list(_lines(source))
    texts = [item for _, line in lines for item in line.evidence if isinstance(item, str)]
    positions = [Position(item) for _, line in lines for item in line.evidence if isinstance(item, int)]
    keyed: dict[str, list[KeyedTurn]] = {}
    for turn in queries.turns_with_keys(connection, texts):
        keyed.setdefault(turn.key, []).append(turn)
    placed = {turn.position: turn for turn in queries.keyed_turns_at(connection, positions)}
    found = []
    for number, line in lines:
        try:
            asked = question(line.question, k=k, mode=mode, scope=line.scope, session=line.session, min_relevance=0)
            if asked.scopes and not queries.has_sessions(connection, asked.scopes):
                raise errors.InvalidInput("scope", f"no session is at or below {line.scope!r}")
            evidence = frozenset(_position(item, line, asked.scopes, keyed, placed) for item in line.evidence)
        except errors.InvalidInput as error:
            raise _wrong(number, f"{error.field}: {error.why}") from error
        found.append(KnownQuestion(asked, evidence, line.category or ""))
    if not found:
        raise errors.InvalidInput("questions", "there are none")
    return found


def _lines(source: Path | Iterable[Mapping[str, Any]]) -> Iterator[tuple[int, _Line]]:
    """Yield the questions with the numbers of their lines, or of the dicts, from 1."""
    if not isinstance(source, Path):
        for number, fields in enumerate(source, 1):
            try:
                yield number, msgspec.convert(fields, _Line)
            except msgspec.ValidationError as error:
                raise _wrong(number, _why(error)) from error
        return
    try:
        lines = read_file(source, size_max=FILE_BYTES_MAX, follow=True).splitlines()
    except OSError as error:
        raise errors.InvalidInput("questions", f"{source} cannot be read: {error.strerror}") from error
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                yield number, _DECODER.decode(line)
            except UNDECODABLE as error:
                raise _wrong(number, _why(error)) from error


def _why(error: Exception) -> str:
    if isinstance(error, msgspec.ValidationError):
        return f"{error}{_NO_EVIDENCE if 'evidence' in str(error) else ''}"
    return f"this is not JSON: {error}"


def _wrong(number: int, why: str) -> errors.InvalidInput:
    return errors.InvalidInput("questions", f"line {number}: {why}")


def _position(
    item: str | int,
    line: _Line,
    scopes: Scopes,
    keyed: Mapping[str, Sequence[KeyedTurn]],
    placed: Mapping[Position, KeyedTurn],
) -> Position:
    """Return the position of one piece of evidence. Raises `InvalidInput` if the question cannot find such a turn."""
    found = keyed.get(item, ()) if isinstance(item, str) else [placed[at] for at in [Position(item)] if at in placed]
    session = line.evidence_session or line.session
    turns = [turn for turn in found if covered(scopes, turn.scope) and session in (None, turn.session)]
    where = f"session {session!r}" if session else f"scope {line.scope!r}" if scopes else "the store"
    if not turns:
        kind = "key" if isinstance(item, str) else "position"
        raise errors.InvalidInput("evidence", f"no turn of {where} has the {kind} {quoted(item)}")
    if len(turns) > 1:
        why = f"{len(turns)} sessions of {where} have a turn with the key {quoted(item)}"
        raise errors.InvalidInput("evidence", f"{why}; name one as `evidence_session`, or give positions")
    return turns[0].position
