"""Read from a question what is requested: an answer, the order in which things were said, or a summary; and on what.

"Could you list in which order I brought up the boat, across our conversations?" asks for the user's words about the
boat. What frames the topic has words of its own, and these would find other turns. Patterns of English; they only set
the default of the parameters `order`, `about` and `cover`.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final, NamedTuple

from mnemolog.domain.choices import DEFAULT_LANGUAGE
from mnemolog.projections.recall.question import Question
from mnemolog.projections.recall.whose_statement import POLITE, Whose, pattern, whose_statement
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
    present: bool
    """Whether it asks what holds now."""


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
    present = is_english and kind == Kind.ANSWER and whose not in (Whose.ASSISTANT, Whose.ADVICE)
    present = present and bool(ASKS.search(query)) and not (_PAST.search(query) or NOT_NOW.search(query))
    return Request(kind, query if kind == Kind.ANSWER or not is_english else _topic(query), whose, present)


def _asks_for_order(query: str) -> bool:
    return bool(_ORDER.search(query) and _I_SAID.search(query) and not _ADVICE.search(query))


def _asks_for_summary(query: str) -> bool:
    return bool(_SUMMARY.search(query) and not _OF_A_SUMMARY.search(query))


def _topic(query: str) -> str:
    rest = " ".join(_FRAME.sub(" ", POLITE.sub(" ", query)).split()).strip(" ,.;:?!")
    return query if STOP_WORDS.issuperset(words_of(rest)) else rest


ASKS: Final = re.compile(
    r"\?\s*$|^\W*(?:(?:so|and|but|ok|hey|please)\W+)*"
    r"(?:what|where|when|who|whom|whose|which|why|how|am|is|are|was|were|do|does|did|have|has|had|can|could|will|would"
    r"|should|tell|remind)\b",
    re.IGNORECASE,
)
"""A query that asks. One of words alone looks for these words, also in questions."""
NOT_NOW: Final = pattern(
    "(?:used|going|able) to|before|back then|when i was|ago|original\\w*|at first|in the past|previous\\w*|earlier",
    "goals?|plan(?:s|ning|ned)?|hop(?:e|es|ing)|wants?|wish|targets?|aims?|would|could|should|might|maybe|if|almost",
    "think(?:s|ing)? (?:of|about)|considering|looking (?:at|for|into|forward)|(?:i|we)'d (?:love|like)|one day",
    "today|tonight|tomorrow|for (?:now|the (?:day|week|weekend|night))|temporar\\w*|visiting",
)
"""About an earlier time, a wish, a plan, or something that lasts a day."""
_PAST: Final = pattern("did|was|were|had|first|initial\\w*|former\\w*|until|last|all|both|total|each|between|ever")
_SAID: Final = (
    r"(?:brought|bring|mention\w*|rais\w+|discuss\w*|talk\w*|spoke|ask\w*|said|say|told|tell|list\w*|describ\w*"
    r"|introduc\w*|cover\w*|report\w*|shared?|wr[io]te)(?: up)?(?: about)?"
)
_OURS: Final = (
    r"(?:all )?(?:of )?(?:our|my|the|these|those|this) (?:\w+ )?(?:conversations?|chats?|discussions?|sessions?)"
)
_LINES: Final = "(?:a few|one|two|three) (?:lines?|words?|sentences?|paragraph)"
_ORDER: Final = pattern(
    r"(?:in|the|what|which) (?:order|sequence)(?! to\b)",
    r"in order(?! to\b)",
    r"chronolog\w*|timeline|sequence",
    r"(?:what|which|came) (?:\w+ )?(?:came|first)",
    r"(?:earliest|oldest)(?: \w+)? first|one after (?:the other|another)|first,? (?:then |and )?second",
    r"by (?:date|time|age|when)|from (?:the|my) (?:start|beginning|first)|(?:start|beginn)ing with",
    r"(?:first|earliest|oldest)\b.{1,30}\b(?:last|latest|newest|later|next|top)",
)
_I_SAID: Final = pattern(
    rf"(?:i|we)(?:'ve|'d)?(?: have| had| first| also| ever)* {_SAID}",
    rf"(?:did|have) (?:i|we)(?: first| ever)? {_SAID}|my (?:first )?(?:messages|remarks|mention)",
    r"(?:points|remarks) (?:did )?(?:i|we) ma[dk]e",
)
_ADVICE: Final = pattern("should")
_SUMMARY: Final = pattern(
    r"summar\w+|recap\w*|sum up|overview|(?:bring|catch) me up|where (?:do )?(?:things|we) stand",
    r"what have (?:we|i) \w+ so far|where are we (?:with|on)|how (?:do|are) things (?:stand|going)|up to now",
    rf"gist|in (?:brief|short|{_LINES})|briefly|short version|highlights|run-?down|condense",
    r"(?:main|key) (?:things|points|facts)|need to know|(?:state|status) of|whole story|refresh my memory|what all",
    r"(?:update|fill|brief) me(?: in)?",
)
_OF_A_SUMMARY: Final = pattern(r"(?:in|from|of) (?:your|the|that|my) (?:\w+ )?summar\w+", "summary (?:you|i)")
"""About a summary that was made."""
_FRAME: Final = pattern(
    r"please|i(?:'d| would) like|(?:list|tell|give|show|walk|describe|provide|outline|put)(?: me| us)(?: through)?",
    r"(?:a |an |the )?(?:\w+ )?(?:summar\w+|recap\w*|overview|sum up)(?: (?:of|on|about))?",
    r"(?:(?:in|what|which|the|exact|chronological) )*(?:order|sequence|timeline)(?: in which| that| of)?|in which",
    r"chronological(?:ly)?|from (?:earliest|first|oldest) to (?:latest|last|newest)",
    r"(?:bring|catch) me up(?: to (?:speed|date))?(?: on)?|(?:where|how) (?:do )?(?:things|we) stand(?: (?:with|on))?",
    r"where are we(?: (?:with|on))?|(?:the )?(?:gist|highlights|run-?down|state|status|short version|whole story) of",
    rf"in (?:brief|short|{_LINES})|briefly|remind me(?: of)?|(?:update|fill|brief) me(?: in)?(?: on)?",
    r"(?:earliest|oldest)(?: \w+)? first|one after (?:the other|another)|first to last|(?:sort|order) what",
    r"by (?:date|time|age|when)|(?:start|beginn)ing with the \w+|refresh my memory(?: on)?|condense",
    rf"(?:did|do|have|has|had) (?:i|we)(?: {_SAID})?|(?:i|we)(?:'ve|'d)?(?: have| had| first)* {_SAID}",
    rf"(?:across|throughout|during|over|in|through) {_OURS}|(?:the )?(?:conversation|discussion)s? (?:about|on)",
    r"(?:the )?(?:different|various|main|key|all the)? ?(?:aspects|topics|things|points|parts)(?: (?:i|we) \w+)*"
    r" (?:of|about|regarding)",
    r"(?:mention|name|list) only (?:and only )?\w+ items?|over time|so far|(?:until|up to) now|has developed",
)
