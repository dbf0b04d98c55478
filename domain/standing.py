"""Read standing statements from what a user says: instructions for every answer, and preferences.

"Always answer in metric" and "I prefer window seats" hold for answers to come; "Never give up!" does not. Patterns of
English: in other languages nothing is read. What is quoted, or code, or a long pasted text, is not what the user says.
"""

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Final, NamedTuple

TURN_CHARACTERS_MAX: Final = 6_000
"""A turn from this length on is pasted text."""
SENTENCE_CHARACTERS_MAX: Final = 600


class StandingKind(StrEnum):
    """What a standing statement is."""

    INSTRUCTION = "instruction"
    """How every answer should be: "Always answer in metric"."""
    CONDITIONAL = "conditional"
    """How some answers should be: "Whenever I ask for code, use Python"."""
    PREFERENCE = "preference"
    """What the user wants, or cannot have: "I prefer window seats", "I'm vegetarian"."""
    FACT = "fact"
    """A fact whose key begins with `standing/`: it was said to be one."""


class Read(NamedTuple):
    """A standing statement in a text."""

    start: int
    end: int
    kind: StandingKind


def standing_in(text: str) -> Iterator[Read]:
    """Yield the standing statements of a user's turn, at most one for each sentence, in order.

    [text[item.start : item.end] for item in standing_in("Thanks! Always answer in metric.")]
    # -> ['Always answer in metric']

    """
    if len(text) >= TURN_CHARACTERS_MAX:
        return
    for sentence in SENTENCE.finditer(_NOT_SAID.sub(lambda found: " " * len(found[0]), text)):
        if len(sentence[0]) <= SENTENCE_CHARACTERS_MAX:
            found = _instruction(sentence[0]) or _preference(sentence[0])
            if found is not None:
                yield found._replace(start=sentence.start() + found.start, end=sentence.start() + found.end)


def _instruction(sentence: str) -> Read | None:
    for kind, pattern in _INSTRUCTIONS:
        if found := pattern.search(sentence):
            request = None if kind == StandingKind.CONDITIONAL else _REQUEST.search(sentence, found.end())
            return _trimmed(sentence, found.start(1), request, kind)
    return None


def _preference(sentence: str) -> Read | None:
    """Read a preference, from its match to the request behind it. A question alone has none: "Do I prefer tea?"."""
    found = _PREFERENCE.search(sentence)
    if found is None or _SUPPOSED.search(sentence, 0, found.start()):
        return None
    request = _REQUEST.search(sentence, found.end())
    if request is None and sentence.endswith("?"):
        return None
    return _trimmed(sentence, found.start(), request, StandingKind.PREFERENCE)


def _trimmed(sentence: str, start: int, request: re.Match[str] | None, kind: StandingKind) -> Read:
    end = len(sentence) if request is None else request.start()
    return Read(start, start + len(sentence[start:end].rstrip(" \t.!?,;:")), kind)


def _pattern(*alternatives: str) -> re.Pattern[str]:
    return re.compile("|".join(alternatives), re.IGNORECASE)


def _after_lead(*alternatives: str) -> re.Pattern[str]:
    """Return a pattern for the beginning of a sentence, or of what follows a colon, behind words that lead to it."""
    words = r"please|so|ok|okay|also|and|but|oh|hey|hi|right|well|btw|by the way|again|important|note|p\.?s\.?"
    people = r"you can|just|everyone|everybody|people|(?:my )?friends"
    asking = rf"(?:(?:can|could|would|will) you (?:please )?)?(?:(?:{people}) )*"
    return _pattern(rf"(?:^|:\s|,\s(?=please\b))\W*(?:(?:{words})\b\W*)*{asking}({'|'.join(alternatives)})")


_NOT_SAID: Final = re.compile(
    r"```.*?(?:```|\Z)|`[^`\n]*`|^[ \t]*>[^\n]*|\u201c[^\u201d]*\u201d|(?<!\w)\"[^\"\n]*\"|(?<!\w)'[^'\n]*'(?!\w)",
    re.DOTALL | re.MULTILINE,
)
"""Code, quoted lines and quoted words."""
SENTENCE: Final = re.compile(r"[^\s](?:[^\n.!?;]|[.!?;](?!\s|$))*[.!?;]*", re.MULTILINE)
_ANSWERING: Final = (
    r"(?:add|address|answer|ask|assume|be (?:brief|concise|short|direct|honest|formal|informal|polite|blunt)|begin|book"
    r"|check|cite|confirm|convert|double[- ]check|end|explain|finish|format|give(?! up)|include|keep|link|list|mention"
    r"|offer|plan|propose|provide|put|quote|recommend|refer|remind|reply|respond|return|round|say(?! never)|schedule"
    r"|send|show|sign|speak|spell|start|state|suggest|summari[sz]e|talk|tell|translate|use|warn|write)\b"
)
_WISH: Final = rf"(?:(?:please|just|only|always|never|do not|don[\u2019']t|you (?:should|must|can)) )*{_ANSWERING}"
_ASKED: Final = (
    r"(?:whenever|when|if|(?:every|any|each) ?time) (?:I|we) (?:ask|say|mention|request|send|share|paste|tell|give)\b"
)
_FROM_NOW: Final = (
    r"(?:from (?:now|here|this point) on(?:wards?)?|going forward|in future"
    r"|in (?:all|every one of) your \w+|in every (?:answer|reply|response|message))"
)
_INSTRUCTIONS: Final = (
    (
        StandingKind.CONDITIONAL,
        _after_lead(
            rf"{_ASKED}[^,]{{2,160}},? (?:then )?{_WISH}",
            rf"{_WISH}.{{2,160}} {_ASKED}",
            rf"(?:for|in|with) (?:every|each|any|all) [^,]{{2,80}}? you \w+,? {_WISH}",
        ),
    ),
    (
        StandingKind.INSTRUCTION,
        _pattern(rf"(\b{_FROM_NOW},? (?:I(?:[\u2019']d| would) like|I want|I need|no\b|you\b|{_WISH}))"),
    ),
    (
        StandingKind.INSTRUCTION,
        _after_lead(
            rf"(?:always|never|(?:don[\u2019']t|do not) ever)\b(?: please)? {_ANSWERING}",
            rf"{_WISH}.{{0,160}}\b{_FROM_NOW}\b(?:\W*$|,)",
            r"no (?:\w+ )?(?:emojis?|markdown|bullet points?|jargon|small talk|exclamation marks?)\b",
            r"use (?:only )?(?:the )?(?:british|american|australian|metric|imperial|celsius|fahrenheit"
            r"|(?:24|12)[- ]?h(?:ours?)?|plain (?:english|language)|iso dates?|simple (?:english|words|language))\b",
            r"call me (?!(?:back|when|later|at|if|on|in|an?|the|old|tomorrow|tonight|today|again|now|for|as|and|or|to"
            r"|crazy|paranoid|picky|fussy)\b)\w+|I go by (?!(?:the|a|bus|train|car|bike|foot)\b)\w+|my pronouns are",
            r"(?:remember|note|keep in mind|bear in mind)(?: that|,)? (?:I|I[\u2019'](?:m|ve)|my)\b",
        ),
    ),
)
"""What instructions are like, the conditional ones first. The first group of each begins where the statement does."""
_OFTEN: Final = r"(?:(?:really|much|generally|usually|always|still|also|strongly|would|do|just|absolutely|kind of) )*"
_NO_NOUN: Final = (
    r"(?!(?:any|the (?:idea|look|sound|thing|fact)|to|that|this|these|those|it|them|how|when|you|him|her)\b)"
)
_PREFERENCE: Final = _pattern(
    rf"\b(?:I|we)(?:[\u2019']d)? {_OFTEN}prefer\b(?! not to say)",
    r"\bI(?:[\u2019']d| would)(?: much)? rather\b(?! not say)",
    r"\bmy (?:\w+ )?(?:preference|favou?rite|preferred) (?:[\w' ]{1,40} )?(?:is|are)\b",
    rf"\bI {_OFTEN}(?:can[\u2019']t|cannot) stand\b",
    rf"\bI {_OFTEN}(?:dislike|hate|despise) {_NO_NOUN}",
    r"\bI (?:do not|don[\u2019']t|no longer|never) (?:eat|drink)\b",
    rf"\bI {_OFTEN}(?:do not|don[\u2019']t) {_OFTEN}like {_NO_NOUN}",
    r"\bI(?:[\u2019']m| am) (?:[\w,]+ ){0,3}?"
    r"(?:allergic to|vegan|vegetarian|pescatarian|teetotal|coeliac|celiac|(?:lactose|gluten)[- ]intolerant)\b",
    r"\bI have (?:an?|\w+) (?:\w+ )?(?:allergy|intolerance)\b",
    r"\bI(?:[\u2019']m| am) (?:\w+ )?more of an?\b",
    r"\b(?:I|we)(?:[\u2019']ve)? (?:chose|chosen|decided|picked) .{2,80}? (?:over|instead of)\b",
)
_SUPPOSED: Final = _pattern(
    r"\b(?:if|whether|unless|would|do|did|does|should|could)\W*$",
    r"\b(?:he|she|they|you|who) (?:\w+ )?(?:says?|saying|said|thinks?|claims?)(?: that)?\W*$",
)
"""Before a preference, it says that the user may not have it."""
_ASKS: Final = r"what|which|how|where|any|please|help|find|suggest|recommend|tell|show"
_REQUEST: Final = _pattern(
    r"[,;:\u2013\u2014-]*\s(?:and |so |but |then )*(?:can|could|would|will|should|do|does|did) (?:you|we|I)\b",
    rf"[,;:\u2013\u2014-]+ ?(?:and |so |but |then )*(?:{_ASKS}|when|who|why|is|are|do|give|write|make|plan|book)\b",
    rf"\s(?:and|so|but) (?:{_ASKS})\b",
)
