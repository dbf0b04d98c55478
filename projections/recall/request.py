"""Read from a question what is requested: an answer, the order in which things were said, or a summary; on what; whose.

"Could you list in which order I brought up the boat, across our conversations?" asks for the user's words about the
boat. What frames the topic has words of its own, and these would find other turns. People ask about their own facts
("What did I pay for the boat?") in other words than about advice ("How should the mast be painted?"). Patterns of
English, of the other languages only the pronouns; they only set the default of `order`, `about` and `cover`.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import cache
from typing import Final, NamedTuple

from mnemolog.domain.choices import DEFAULT_LANGUAGE
from mnemolog.projections.recall.question import Question
from mnemolog.projections.sql.words import STOP_WORDS, words_of


class Whose(StrEnum):
    """Whose statement a question asks for."""

    USER = "user"
    """What the user said or did: "What did I pay?"."""
    ASSISTANT = "assistant"
    """What the assistant said: "Which did you suggest?"."""
    MINE = "mine"
    """A fact about the user: "my boat", "our plan"."""
    ADVICE = "advice"
    """An explanation or advice: "How should the mast be painted?"."""
    OPEN = "open"
    """None of these."""


class _Pronouns(NamedTuple):
    """Patterns, compiled for the first question in the language."""

    mine: str
    yours: str


def whose_statement(query: str, language: str) -> Whose:
    """Return whose statement a question in a language asks for."""
    pronouns = _PRONOUNS.get(language)
    if pronouns is not None:
        if pattern(pronouns.mine).search(query):
            return Whose.MINE
        return Whose.ASSISTANT if pattern(pronouns.yours).search(query) else Whose.OPEN
    query = POLITE.sub(" ", query)
    if _I_DID.search(query):
        return Whose.USER
    if _YOU_DID.search(query):
        return Whose.ASSISTANT
    if _ADVICE.search(query):
        return Whose.ADVICE
    return Whose.MINE if MINE.search(query) else Whose.OPEN


@cache
def pattern(*alternatives: str) -> re.Pattern[str]:
    """Return a pattern for any of these, as whole words, in upper or lower case."""
    return re.compile(rf"\b(?:{'|'.join(alternatives)})\b", re.IGNORECASE)


POLITE: Final = pattern(
    r"(?:can|could|would|will) you (?:please )?"
    r"(?:list|tell|give|show|help|walk|describe|provide|summari[sz]e|outline|put|find|recap)"
    r"(?: me| us)?(?: through| with)?"
)
"""Begins a request, and says nothing of whose words are wanted. Who says "remind me" mostly wants the assistant's."""
_I_DID: Final = pattern(
    r"(?:did|do|had|have|was|were|am|would|could|should) (?:i|we)"
    r"(?! (?:get|do|find|use|avoid|make|need|have to|set|add)\b)|i (?:have )?(?:brought up|raised)"
    r"|(?:i|we) (?:\w+ )?"
    r"(?:said|told|asked|gave|wanted|mention\w*|call\w*|chose|picked|complain\w*|decid\w*|plann?\w*|bought|paid|started|thought|worr\w*|liked|prefer\w*|went|met|saw|used)"
)
_YOU_DID: Final = pattern(
    r"(?:did|do|had|have|was|were|would|could|can) you|your (?!own\b)\w+|according to you"
    r"|the (?:assistant|ai|bot|agent)"
    r"|you(?:'d| \w+ed| said| told| gave| made| put| think| thought| chose| found| wrote| drew| came| once)"
)
_ADVICE: Final = pattern(
    r"suggest\w*|recommend\w*|advis\w*|advice|propos\w*|explain\w*|argument\w*|alternatives?|steps?|recipe|formula|code"
    r"|checklist|estimat\w*|tips?|example|why|what does|supposed to|how (?:do|can|does|would|could)"
    r"|(?:how|what|which|where|when|why|who) (?:\w+ ){0,3}(?:should|must|ought)"
)
MINE: Final = pattern("i|i'm|i've|i'd|my|me|mine|myself|we|our|us")
_PRONOUNS: Final = {
    "de": _Pronouns(r"ich|mich|mir|mein\w*|wir|uns|unser\w*", r"du|dich|dir|dein\w*|euch|euer\w*"),
    "fr": _Pronouns("je|j|me|m|moi|mon|ma|mes|nous|notre|nos", "tu|te|t|toi|ton|ta|tes|vous|votre|vos"),
    "es": _Pronouns("yo|me|mi|mis|mí|nosotr[oa]s|nuestr[oa]s?", "tú|tu|tus|te|ti|usted|ustedes"),
    "pt": _Pronouns("eu|me|mim|meu|minha|meus|minhas|nós|noss[oa]s?", "tu|te|ti|você|vocês|teu|tua|teus|tuas"),
    "it": _Pronouns("io|mi|me|mio|mia|miei|mie|noi|nostr[oaie]", "tu|ti|te|tuo|tua|tuoi|tue|voi|vostr[oaie]"),
}


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
    return bool(_ORDER.search(query) and _I_SAID.search(query) and not _WANTS_ADVICE.search(query))


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
_WANTS_ADVICE: Final = pattern("should")
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
