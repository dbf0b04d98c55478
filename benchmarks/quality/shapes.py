"""Questions with known evidence, read from a folder of `turns.jsonl` and `questions.jsonl`.

`turns.jsonl`: {conversation, session, session_time, turn_id, speaker, text[, image_caption]}.
`questions.jsonl`, one of two shapes, told apart by their fields:

- LoCoMo (Maharana et al., ACL 2024): {conversation, question, category, evidence, adversarial}.
- LongMemEval (Wu et al., ICLR 2025): {conversation, question, category, evidence, evidence_sessions, abstention,
  official, split}. Its sessions are evidence too, also where no turn is.

A conversation is what a question may see: a dialogue of LoCoMo, a haystack of LongMemEval.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from mnemolog.adapters.importers import parse_field_map, read_turns

FIELDS: Final = (
    "text=text+image_caption,session=conversation+session,scope=conversation,"
    "speaker=speaker,key=turn_id,time=session_time"
)
"""How the importer reads `turns.jsonl`: a session is known as `conversation/session`, a turn by its `turn_id`."""

Shape = Literal["locomo", "longmemeval"]

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


class Corpus(msgspec.Struct, frozen=True, kw_only=True):
    """A folder of conversations and the questions about them."""

    name: str
    shape: Shape
    path: Path
    turns: int
    conversations: int
    sessions: int
    characters: int
    """Of all turns, each with its speaker: what a model reads that embeds every turn once."""
    questions: tuple[Question, ...]
    unknown_evidence: int
    """Evidence that names no turn of its conversation. It is passed over."""

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


def read_corpus(path: Path, *, name: str | None = None) -> Corpus:
    """Read a folder. Raises `ValueError` where its questions have neither shape."""
    session_of: dict[tuple[str, str], str] = {}
    characters = 0
    for turn in read_turns(path / "turns.jsonl", fields=parse_field_map([FIELDS])):
        session_of[turn.scope, turn.key] = turn.session
        characters += len(turn.text) + (len(f"{turn.speaker}: ") if turn.speaker else 0)
    rows = [msgspec.json.decode(line) for line in (path / "questions.jsonl").read_bytes().splitlines() if line.strip()]
    shape = shape_of(rows)
    read = _locomo if shape == "locomo" else _longmemeval
    known = [frozenset(map(str, row["evidence"])) for row in rows]
    found = [
        frozenset(key for key in keys if (str(row["conversation"]), key) in session_of)
        for row, keys in zip(rows, known, strict=True)
    ]
    return Corpus(
        name=name or path.resolve().name,
        shape=shape,
        path=path,
        turns=len(session_of),
        conversations=len({conversation for conversation, _ in session_of}),
        sessions=len(set(session_of.values())),
        characters=characters,
        questions=tuple(
            read(row, number, turns, session_of) for number, (row, turns) in enumerate(zip(rows, found, strict=True))
        ),
        unknown_evidence=sum(len(keys) for keys in known) - sum(len(keys) for keys in found),
    )


def shape_of(rows: Iterable[dict[str, Any]]) -> Shape:
    """Return the shape whose fields the questions have."""
    fields = {field for row in rows for field in row}
    if "evidence_sessions" in fields:
        return "longmemeval"
    if "adversarial" in fields:
        return "locomo"
    raise ValueError(
        "questions.jsonl is neither of LoCoMo's shape (field `adversarial`) nor of LongMemEval's (`evidence_sessions`)"
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
