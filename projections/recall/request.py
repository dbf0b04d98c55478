"""Read from a question what is requested: an answer, the order in which things were said, or a summary; and on what.

"Could you list in which order I brought up the boat, across our conversations?" asks for the user's words about the
boat. What frames the topic has words of its own, and these would find other turns. Patterns of English; they only set
the default of the parameters `order`, `about` and `cover`.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final, NamedTuple

from mnemolog.domain.language import DEFAULT_LANGUAGE
from mnemolog.projections.recall.question import Question
from mnemolog.projections.recall.whose_statement import POLITE, Whose, whose_statement
from mnemolog.projections.sql.words import STOP_WORDS, words_of


class Kind(StrEnum):
    """What a question requests."""

    ANSWER = "answer"
    ORDER = "order"
    """The order in which the user said things."""
    SUMMARY = "summary"
    """What was said on a topic, much of it rather than the best."""


class Request(NamedTuple):
    """What a question requests."""

    kind: Kind
    topic: str
    """What to search for: the question, or what is left of it without the frame of an order or a summary."""
    whose: Whose


def request_of(question: Question, language: str) -> Request:
    """Read a question. Parameters of the question go before patterns."""
    query, is_english = question.query, language == DEFAULT_LANGUAGE
    kind = Kind.ANSWER
    if question.order == "time" or (question.order is None and is_english and _asks_for_order(query)):
        kind = Kind.ORDER
    elif question.cover or (question.cover is None and is_english and _asks_for_summary(query)):
        kind = Kind.SUMMARY
    whose = whose_statement(query, language)
    if question.about is not None:
        whose = Whose.USER if question.about == "said" else Whose.ASSISTANT
    elif kind == Kind.ORDER:
        whose = Whose.USER
    return Request(kind, query if kind == Kind.ANSWER or not is_english else _topic(query), whose)


def _asks_for_order(query: str) -> bool:
    return bool(_ORDER.search(query) and _I_SAID.search(query) and not _ADVICE.search(query))


def _asks_for_summary(query: str) -> bool:
    return bool(_SUMMARY.search(query) and not _OF_A_SUMMARY.search(query))


def _topic(query: str) -> str:
    rest = " ".join(_FRAME.sub(" ", POLITE.sub(" ", query)).split()).strip(" ,.;:?!")
    return query if STOP_WORDS.issuperset(words_of(rest)) else rest


def _pattern(*alternatives: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(alternatives)})\b", re.IGNORECASE)


_SAID: Final = (
    r"(?:brought|bring|mention\w*|rais\w+|discuss\w*|talk\w*|spoke|ask\w*|said|say|told|tell|list\w*|describ\w*"
    r"|introduc\w*|cover\w*|report\w*|shared?)(?: up)?(?: about)?"
)
_OURS: Final = (
    r"(?:all )?(?:of )?(?:our|my|the|these|those|this) (?:\w+ )?(?:conversations?|chats?|discussions?|sessions?)"
)
_ORDER: Final = _pattern(
    r"(?:in|the|what|which) (?:order|sequence)(?! to\b)",
    r"in order(?! to\b)",
    r"chronolog\w*|timeline|sequence",
    r"(?:what|which|came) (?:\w+ )?(?:came|first)",
)
_I_SAID: Final = _pattern(
    rf"(?:i|we)(?:'ve|'d)?(?: have| had| first| also| ever)* {_SAID}",
    rf"(?:did|have) (?:i|we)(?: first| ever)? {_SAID}",
)
_ADVICE: Final = _pattern("should")
_SUMMARY: Final = _pattern(
    r"summar\w+|recap\w*|sum up|overview|(?:bring|catch) me up|where (?:do )?(?:things|we) stand",
    r"what have (?:we|i) \w+ so far",
)
_OF_A_SUMMARY: Final = _pattern(r"(?:in|from|of) (?:your|the|that|my) (?:\w+ )?summar\w+", "summary (?:you|i)")
"""About a summary that was made."""
_FRAME: Final = _pattern(
    r"please|i(?:'d| would) like|(?:list|tell|give|show|walk|describe|provide|outline|put)(?: me| us)(?: through)?",
    r"(?:a |an |the )?(?:\w+ )?(?:summar\w+|recap\w*|overview|sum up)(?: (?:of|on|about))?",
    r"(?:(?:in|what|which|the|exact|chronological) )*(?:order|sequence|timeline)(?: in which| that| of)?|in which",
    r"chronological(?:ly)?|from (?:earliest|first|oldest) to (?:latest|last|newest)",
    r"(?:bring|catch) me up(?: to (?:speed|date))?(?: on)?|where (?:do )?(?:things|we) stand(?: (?:with|on))?",
    rf"(?:did|do|have|has|had) (?:i|we)(?: {_SAID})?|(?:i|we)(?:'ve|'d)?(?: have| had| first)* {_SAID}",
    rf"(?:across|throughout|during|over|in|through) {_OURS}|(?:the )?(?:conversation|discussion)s? (?:about|on)",
    r"(?:the )?(?:different|various|main|key|all the)? ?(?:aspects|topics|things|points|parts) (?:of|about|regarding)",
    r"(?:mention|name|list) only (?:and only )?\w+ items?|over time|so far|until now|has developed",
)
