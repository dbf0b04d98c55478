"""Read from the words of a question whose statement it asks for.

People ask about their own facts ("What did I pay for the boat?") in other words than about advice that they were given
("What did you suggest for the mast?", "How should the mast be painted?"). Patterns of English; of the other languages
only the pronouns.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import cache
from typing import Final, NamedTuple


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
