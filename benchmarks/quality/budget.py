"""What a context of so many tokens still holds: of the evidence, and of the answer's words.

Evidence alone would reward cutting the answer away: a turn counts as shown if any part of it is. So the words of the
answer count as well, those that the evidence turn has, where the shown part of that turn still has them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import Any, Final

from benchmarks.quality.runner import Pack, Packed
from benchmarks.quality.shapes import Question
from mnemolog import MemoryStore, Turn
from mnemolog.domain.choices import DEFAULT_LANGUAGE
from mnemolog.domain.values import Position
from mnemolog.infra.embedding.model_files import resolve_model
from mnemolog.projections.context.answer import Context
from mnemolog.projections.recall.passages import SoughtWords, best_passage
from mnemolog.projections.sql.words import stems_of, terms_of

BUDGETS: Final = (500, 1_000, 2_000)
"""In tokens."""
ANSWER_CHARACTERS: Final = 300
"""The length of the part of an evidence turn that is taken for the answer, besides the answer that the data has."""


def gold_share(shown: Collection[Position], evidence: Collection[Position]) -> float:
    """Return which share of the evidence turns is shown, each in whole or in part."""
    return sum(position in shown for position in evidence) / len(evidence)


def answer_words(turn: str, question: str, answer: str) -> frozenset[str]:
    """Return the stems of the answer in an evidence turn, without stop words.

    Those of `answer` that the turn has, and those of the passage of the turn that holds most of question and answer.
    """
    asked = SoughtWords(dict.fromkeys(terms_of(f"{question} {answer}"), 1.0), DEFAULT_LANGUAGE)
    passage = best_passage(turn, asked, limit=ANSWER_CHARACTERS).text
    return frozenset(terms_of(answer)).intersection(stems_of(turn)).union(terms_of(passage))


def words_share(shown: Mapping[Position, str], words: Mapping[Position, frozenset[str]]) -> float:
    """Return which share of the answer's words, by evidence turn, is in what is shown of these turns."""
    held = sum(len(some.intersection(stems_of(shown.get(position, "")))) for position, some in words.items())
    return held / max(sum(map(len, words.values())), 1)


def shown_in(context: Context) -> dict[Position, str]:
    """Return the shown text of each turn of a context."""
    found: dict[Position, str] = {}
    for passage in (passage for block in context.blocks for passage in block.passages):
        found[passage.position] = f"{found.get(passage.position, '')} {passage.text}"
    return found


def packer(tokenizer: Callable[[str], int] | None = None) -> Pack:
    """Return a function that packs a context for a question and measures it. The tokenizer is that of a context."""

    def pack(store: MemoryStore, item: Question, tokens: int) -> Packed:
        context = store.context(item.text, tokens, scope=item.conversation, tokenizer=tokenizer)
        evidence = [turn for turn in _turns(store, item.conversation) if turn.key in item.turns]
        shown, texts = shown_in(context), {turn.position: turn.text for turn in evidence}
        words = {position: answer_words(text, item.text, item.answer) for position, text in texts.items()}
        return Packed(gold_share(shown, texts), words_share(shown, words), context.tokens / tokens)

    return pack


def tokens_of_model(name: str) -> Callable[[str], int]:
    """Return a function that counts tokens with the tokenizer of a SentenceTransformer."""
    from tokenizers import Tokenizer

    tokenizer: Any = Tokenizer.from_file(str(resolve_model(name) / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()

    def count(text: str) -> int:
        return len(tokenizer.encode(text, add_special_tokens=False).ids)

    return count


@cache
def _turns(store: MemoryStore, conversation: str) -> tuple[Turn, ...]:
    """Return the turns of a conversation. A benchmark does not change its store while it asks."""
    sessions = store.sessions(scope=conversation)
    return tuple(turn for found in sessions for turn in store.session(found.session, scope=found.scope).turns())
