"""Questions with known evidence: a folder with `turns.jsonl` and `questions.jsonl`, or conversations of our own.

`turns.jsonl`: {conversation, session, session_time, turn_id, speaker, text[, image_caption]}.
`questions.jsonl`, one of three shapes, told apart by their fields:

- LoCoMo (Maharana et al., ACL 2024): {conversation, question, category, evidence, adversarial}.
- LongMemEval (Wu et al., ICLR 2025): {conversation, question, category, evidence, evidence_sessions, abstention,
  official, split}. Its sessions are evidence too, also where no turn is.
- plain: {conversation, question, evidence[, category]}. Without evidence, nothing answers the question.

A conversation of our own is `NAME.jsonl`, turns as `mnemolog import` reads them, with `NAME-questions.jsonl`,
whose fields benchmarks/conversations/README.md has.

A conversation is what a question may see: a dialogue of LoCoMo, a haystack of LongMemEval, a scope of our own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from benchmarks.quality.left_out import OURS, source_of
from mnemolog.adapters.importers import parse_field_map, read_turns

FIELDS: Final = (
    "text=text+image_caption,session=conversation+session,scope=conversation,"
    "speaker=speaker,key=turn_id,time=session_time"
)
"""How the importer reads `turns.jsonl`: a session is known as `conversation/session`, a turn by its `turn_id`."""

Shape = Literal["locomo", "longmemeval", "plain"]

LOCOMO_CATEGORIES: Final = {
    "1": "multi-hop",
    "2": "temporal",
    "3": "open-domain",
    "4": "single-hop",
    "5": "adversarial",
}


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question with what answers it."""

    id: str
    conversation: str
    text: str
    category: str
    turns: frozenset[str]
    """Keys of the evidence turns."""
    sessions: frozenset[str]
    """Sessions that hold evidence, by the names they have in the store."""
    refused: str | None = None
    """Why it is asked at no level: no answer of it could be right or wrong."""
    groups: tuple[str, ...] = ()
    """What it is also reported under."""
    answer: str = ""
    """The answer in words, where the data has it."""


class Corpus(msgspec.Struct, frozen=True, kw_only=True):
    """A set of conversations and the questions about them."""

    name: str
    source: str
    """Sets of one source share conversations, or were written by the same hand."""
    shape: Shape
    file: Path
    """The file of its turns."""
    fields: tuple[str, ...]
    """How the importer reads it."""
    turns: int
    conversations: int
    sessions: int
    characters: int
    """Of all turns, each with its speaker: what a model reads that embeds every turn once."""
    questions: tuple[Question, ...]
    unknown_evidence: int
    """Evidence that names no turn of its conversation. It is passed over."""
    texts: dict[tuple[str, str], str]
    """The texts of the turns with evidence, by conversation and key."""

    def left_out(self) -> dict[str, dict[str, int]]:
        """Return, level by level, how many questions are not asked, by reason."""
        reasons: dict[str, dict[str, int]] = {}
        for level in ("turn", "session"):
            found = Counter(reason for item in self.questions if (reason := reason_against(item, level)))
            reasons[level] = dict(sorted(found.items()))
        return reasons


def reason_against(question: Question, level: str) -> str | None:
    """Return why a question is left out at a level, None where it is not."""
    if question.refused:
        return question.refused
    if not (question.turns if level == "turn" else question.sessions):
        return f"without evidence {level}"
    return None


def read_set(path: Path) -> Corpus:
    """Read a set: a folder, or a conversation of our own. Raises `ValueError` for questions of no known shape."""
    if path.suffix == ".jsonl":
        rows = _rows(path.with_name(f"{path.stem}-questions.jsonl"))
        own = [row | {"conversation": row.get("scope", "")} for row in rows]
        return _corpus(path.stem, OURS, "plain", path, (), own)
    rows, name = _rows(path / "questions.jsonl"), path.resolve().name
    return _corpus(name, source_of(name), shape_of(rows), path / "turns.jsonl", (FIELDS,), rows)


def _rows(file: Path) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in file.read_bytes().splitlines() if line.strip()]


def _corpus(
    name: str, source: str, shape: Shape, file: Path, fields: tuple[str, ...], rows: Sequence[dict[str, Any]]
) -> Corpus:
    known = [frozenset(map(str, row["evidence"])) for row in rows]
    wanted = {(str(row["conversation"]), key) for row, keys in zip(rows, known, strict=True) for key in keys}
    session_of: dict[tuple[str, str], str] = {}
    texts: dict[tuple[str, str], str] = {}
    characters = 0
    for turn in read_turns(file, fields=parse_field_map(fields)):
        place = turn.scope, turn.key
        session_of[place] = turn.session
        characters += len(turn.text) + (len(f"{turn.speaker}: ") if turn.speaker else 0)
        if place in wanted:
            texts[place] = turn.text
    read = {"locomo": _locomo, "longmemeval": _longmemeval, "plain": _plain}[shape]
    found = [
        frozenset(key for key in keys if (str(row["conversation"]), key) in session_of)
        for row, keys in zip(rows, known, strict=True)
    ]
    return Corpus(
        name=name,
        source=source,
        shape=shape,
        file=file,
        fields=fields,
        turns=len(session_of),
        conversations=len({conversation for conversation, _ in session_of}),
        sessions=len(set(session_of.values())),
        characters=characters,
        questions=tuple(
            read(row, number, turns, session_of) for number, (row, turns) in enumerate(zip(rows, found, strict=True))
        ),
        unknown_evidence=sum(len(keys) for keys in known) - sum(len(keys) for keys in found),
        texts=texts,
    )


def shape_of(rows: Iterable[dict[str, Any]]) -> Shape:
    """Return the shape whose fields the questions have."""
    fields = {field for row in rows for field in row}
    if "evidence_sessions" in fields:
        return "longmemeval"
    if "adversarial" in fields:
        return "locomo"
    if {"conversation", "question", "evidence"} <= fields:
        return "plain"
    raise ValueError("questions.jsonl has no fields `conversation`, `question` and `evidence`")


def _plain(row: dict[str, Any], number: int, turns: frozenset[str], session_of: dict[tuple[str, str], str]) -> Question:
    conversation = str(row["conversation"])
    return Question(
        id=str(row.get("question_id", number)),
        conversation=conversation,
        text=row["question"],
        category=str(row.get("category") or "all"),
        turns=turns,
        sessions=frozenset(session_of[conversation, key] for key in turns),
        refused=None if row["evidence"] else "unanswerable",
        answer=str(row.get("note") or row.get("answer") or ""),
    )


def _locomo(
    row: dict[str, Any], number: int, turns: frozenset[str], session_of: dict[tuple[str, str], str]
) -> Question:
    conversation, category = str(row["conversation"]), str(row.get("category", "all"))
    return Question(
        id=str(row.get("question_id", number)),
        conversation=conversation,
        text=row["question"],
        category=LOCOMO_CATEGORIES.get(category, category),
        turns=turns,
        sessions=frozenset(session_of[conversation, key] for key in turns),
        refused="adversarial" if row["adversarial"] else None,
        answer=str(row.get("answer") or ""),
    )


def _longmemeval(
    row: dict[str, Any], number: int, turns: frozenset[str], session_of: dict[tuple[str, str], str]
) -> Question:
    conversation = str(row["conversation"])
    named = {f"{conversation}/{session}" for session in row["evidence_sessions"] or ()}
    official, split = bool(row.get("official", True)), str(row.get("split", ""))
    return Question(
        id=str(row.get("question_id", number)),
        conversation=conversation,
        text=row["question"],
        category=str(row.get("category", "all")),
        turns=turns,
        sessions=frozenset(named) | {session_of[conversation, key] for key in turns},
        refused="abstention" if row.get("abstention") else None,
        groups=("official", *([f"official, {split}"] if split else [])) if official else (),
    )
