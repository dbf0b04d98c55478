"""A question: the query, which turns may answer it, and how they are weighed. Validated when it is created.

The cursor for its next page is opaque text, valid for one question, one log and one ranking.

And what it requests: an answer, the order in which things were said, or a summary; on what; whose. "Could you list in
which order I brought up the boat, across our conversations?" asks for the user's words about the boat. What frames the
topic has words of its own, and these would find other turns. People ask about their own facts ("What did I pay for the
boat?") in other words than about advice ("How should the mast be painted?"). Patterns of English, of the other
languages only the pronouns; they only set the default of `order`, `about` and `cover`.
"""

import math
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cache
from hashlib import sha256
from typing import Annotated, Any, Final, Literal, NamedTuple, TypedDict, Unpack, get_args

import msgspec

from mnemolog.domain import errors
from mnemolog.domain.choices import DEFAULT_LANGUAGE
from mnemolog.domain.encoding import canonical, to_msgpack
from mnemolog.domain.head import RecordedTimes, positions_between
from mnemolog.domain.message import Role, parse_role
from mnemolog.domain.options import Option, with_defaults
from mnemolog.domain.scope import Scopes, parse_scopes
from mnemolog.domain.session import Spans, checked_metadata
from mnemolog.domain.values import (
    RECALL_FILTERS_MAX,
    By,
    Micros,
    Position,
    Time,
    check_count,
    checked_by,
    checked_label,
    checked_number,
    checked_text,
    checked_whole,
    parse_time,
    to_datetime,
)
from mnemolog.projections.sql.queries import Filters
from mnemolog.projections.sql.words import STOP_WORDS, words_of

RANKING: Final = "relevance/8"
"""Name and version of the ranking, stored in receipts and cursors. Change it whenever the ranking changes."""

WEIGHT_MAX: Final = 100
AHEAD: Final = 1e-4
"""How much log-odds a turn is put ahead of another that it has to come before."""


class Weights(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """How much of each part of the score counts: 1 as fitted, 0 not at all.

    The fit and what each part gives are on docs/reports/recall-quality.md.
    """

    words: float = 1.0
    """Words of the query in the turn."""
    neighbours: float = 1.0
    """Words and meaning of the turns next to it: an answer seldom repeats the words of its question."""
    vector: float = 1.0
    """Similarity of the turn's vector to the query's."""
    speaker: float = 1.0
    """The query names the speaker of the turn."""
    date: float = 1.0
    """Said at or near the date that the query names."""
    role: float = 1.0
    """Subtracted from a turn of the role whose words the query does not ask for ("What did I…", "What did you…")."""
    currency: float = 3.0
    """A later statement about a change comes before what it changes, if it is at most so far behind."""
    distinct: bool = True
    """Return what was repeated word for word once, and what was said in nearly the same words after other turns."""


DEFAULT: Final = Weights()


def checked_weights(weights: Weights) -> Weights:
    """Return `weights` if they are valid numbers. Raises `InvalidInput`."""
    if not isinstance(weights, Weights):
        raise errors.InvalidInput("weights", f"expected Weights, got {type(weights).__name__}")
    for name in weights.__struct_fields__:
        if name != "distinct":
            checked_number(f"weights.{name}", getattr(weights, name), most=WEIGHT_MAX)
    return weights


def stored_weights(ranking: str, stored: Mapping[str, Any]) -> Weights:
    """Return the weights of a receipt that names this ranking. Raises `InvalidInput`, also for another ranking."""
    if ranking != RANKING:
        raise errors.InvalidInput("ranking", f"the receipt names {ranking!r}, and this mnemolog has {RANKING!r}")
    try:
        return checked_weights(msgspec.convert(stored, Weights))
    except msgspec.ValidationError as error:
        raise errors.InvalidInput("weights", str(error)) from error


Mode = Literal["hybrid", "vector", "text"]
MODES: Final[tuple[Mode, ...]] = get_args(Mode)
Asked = Literal["skip", "keep"]
Superseded = Literal["mark", "drop"]
Order = Literal["relevance", "time"]
About = Literal["said", "answered"]
TEXT: Final = "text"
VECTOR: Final = "vector"
"""The legs of a recall: the search paths that answer it. `hybrid` uses both."""

DIGEST_BYTES: Final = 8
"""Length of the digests in a cursor, in bytes: a prefix of a SHA-256."""

FITS: Final = 0.1
"""The relevance from which on a hit fits its question well."""
FLOOR: Final = 0.07
"""Where the best hit fits, hits from this relevance on are returned."""
FLOOR_WITHOUT: Final = 0.05
"""Where nothing fits well, only the best few, and from this relevance on."""
FEW: Final = 5
"""How many these are."""

_NO_TEXT: Final = "\ufffd"
"""U+FFFD, the replacement character, for what is not valid text."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A recall as requested, independent of the position it is answered at."""

    query: str
    k: int = 5
    mode: Mode = "hybrid"
    scopes: Scopes = ()
    session: str | None = None
    asked_in: str | None = None
    """The session that asks. It and the next field do not change the answer."""
    asked_for: Position | None = None
    """The turn that it asks for; None for the next one that it records."""
    lineage: bool = False
    """Whether to search all turns that `session` sees, instead of only its own."""
    beside: Scopes | None = None
    """With `lineage`, also search sessions at or below these, but not other branches of `session` and its ancestors."""
    hidden: bool = False
    """With `lineage`, also search turns hidden by a rewind or a restore."""
    roles: tuple[Role, ...] = ()
    speakers: tuple[str, ...] = ()
    since: Micros | None = None
    until: Micros | None = None
    by: By = "said"
    """Whether `since` and `until` are times when turns were said or recorded."""
    metadata: dict[str, Any] = {}
    context_turns: int = 0
    exchange: bool = False
    weights: Weights = DEFAULT
    min_relevance: float | None = None
    """Turns of less relevance are left out; None for a floor that depends on the best hit (`floor`)."""
    asked: Asked = "skip"
    """What becomes of turns that ask the same: they are passed over, or may be hits."""
    superseded: Superseded = "mark"
    """What becomes of turns that facts rest on of which none holds: hits say so, or they are left out."""
    order: Order | None = None
    """With `time`, it asks in which order the user said things. None: as the words of the query have it."""
    about: About | None = None
    """Whose statement it asks for: what the user said, or what the assistant answered."""
    cover: bool | None = None
    """Whether it asks for much on a topic rather than for the best."""
    alone: bool = False
    """Whether words are weighed by the turns that the filters leave, so that the answer says nothing of others."""

    def filters(self, spans: Spans | None, log: RecordedTimes) -> Filters:
        """Return the filters for turns that may answer. `spans` is what the session sees, with `lineage`."""
        said = self.by == "said"
        after, last = (None, None) if said else positions_between(self.since, self.until, log)
        return Filters(
            scopes=self.scopes,
            session=self.session,
            spans=spans,
            beside=self.beside,
            roles=self.roles,
            speakers=self.speakers,
            since=self.since if said else None,
            until=self.until if said else None,
            after=after,
            last=last,
            metadata=self.metadata,
        )

    def given_filters(self) -> dict[str, Any]:
        """Return the filters that were given, by the names of the arguments of a recall."""
        given: dict[str, Any] = {
            "scope": self.scopes[0] if len(self.scopes) == 1 else list(self.scopes),
            "session": self.session,
            "lineage": self.lineage,
            "beside": None if self.beside is None else [*self.beside] or ["/"],
            "hidden": self.hidden,
            "roles": [role.value for role in self.roles],
            "speakers": list(self.speakers),
            "since": None if self.since is None else to_datetime(self.since),
            "until": None if self.until is None else to_datetime(self.until),
            "by": self.by if self.by != "said" else None,
            "metadata": self.metadata,
            "min_relevance": self.min_relevance,
            "asked": self.asked if self.asked != "skip" else None,
            "superseded": self.superseded if self.superseded != "mark" else None,
            "order": self.order,
            "about": self.about,
            "cover": self.cover,
        }
        return {name: value for name, value in given.items() if value or isinstance(value, float)}

    def digest(self) -> bytes:
        """Return a digest for cursors that differs if the rankings may differ. It does not depend on `k`."""
        asked = msgspec.to_builtins(msgspec.structs.replace(self, k=1, context_turns=0, exchange=False))
        del asked["asked_in"], asked["asked_for"]
        return sha256(canonical(asked)).digest()[:DIGEST_BYTES]


class TurnFilters(TypedDict, total=False):
    """Which turns may answer. A filter that is not given leaves all turns."""

    roles: Annotated[Sequence[str], Option("only turns with one of these roles", ())]
    speakers: Annotated[Sequence[str], Option("only turns of these speakers", ())]
    since: Annotated[Time | None, Option("only turns said at this time or later; see `by`")]
    until: Annotated[Time | None, Option("only turns said before this time; see `by`")]
    by: Annotated[By, Option("whether `since` and `until` are times when turns were `said` or `recorded`", "said")]
    metadata: Annotated[Mapping[str, Any] | None, Option("only turns with each of these keys and JSON values")]


class SearchOptions(TurnFilters, total=False):
    """Which turns may answer, and how they are ranked."""

    mode: Annotated[Mode, Option("search by words and meaning (`hybrid`), or by `text` or `vector` alone", "hybrid")]
    min_relevance: Annotated[
        float | None, Option("leave out turns of less relevance, from 0 to 1; None for a floor that suits the best hit")
    ]
    weights: Annotated[Weights | None, Option("how much each part of the score counts (docs/ranking.md)")]
    order: Annotated[
        Order | None, Option("`time` to ask in which order the user said things; None: as the query is understood")
    ]
    about: Annotated[
        About | None, Option("whose statements count more: what the user `said`, what the assistant `answered`")
    ]
    cover: Annotated[bool | None, Option("whether the query asks for a summary; None: as it is understood")]
    asked: Annotated[Asked, Option("whether to `skip` or `keep` turns that ask the same as the query", "skip")]
    asked_for: Annotated[
        Position | None, Option("position of the turn of the asking session that needs the answer; None: its next one")
    ]
    superseded: Annotated[Superseded, Option("whether to `mark` or `drop` evidence of facts that do not hold", "mark")]


class RecallOptions(SearchOptions, total=False):
    """Which turns may answer, how they are ranked, and what each hit brings with it."""

    context_turns: Annotated[int, Option("add so many turns before and after each hit, up to 20", 0)]
    exchange: Annotated[bool, Option("add the reply to each hit, or what it replies to", False)]


def question(
    query: str,
    *,
    k: int = 5,
    scope: str | Sequence[str] | None = None,
    session: str | None = None,
    own: str | None = None,
    asked_in: str | None = None,
    lineage: bool = False,
    hidden: bool = False,
    **options: Unpack[RecallOptions],
) -> Question:
    """Return a validated question. Raises `InvalidInput`, `LimitExceeded`; nothing was read or written.

    `asked_in` is the session that asks, for the receipt. `own` is the scope of `session`, if that is what asks: then
    others of its scope, or of `scope`, may answer as well, unless with `lineage`.
    """
    scopes, beside = parse_scopes("" if scope is None else scope), None
    if own is not None and not lineage:
        beside, lineage = parse_scopes(own) or None if scope is None else scopes, True
    given = with_defaults(RecallOptions, options)
    least = given["min_relevance"]
    query = checked_question(query, k=k, mode=given["mode"])
    checked_whole("context_turns", given["context_turns"])
    if lineage and session is None:
        raise errors.InvalidInput("lineage", "say whose: give a session as well")
    if hidden and not lineage:
        raise errors.InvalidInput("hidden", "only a lineage hides turns; without one they are there anyway")
    metadata = checked_metadata(given["metadata"]) if given["metadata"] else {}
    check_count("metadata", len(metadata), limit=RECALL_FILTERS_MAX, unit="keys")
    return Question(
        query=query,
        k=k,
        mode=given["mode"],
        scopes=scopes,
        session=session,
        asked_in=asked_in if own is None else session,
        asked_for=given["asked_for"],
        lineage=lineage,
        beside=beside,
        hidden=hidden,
        roles=tuple(sorted({parse_role(role) for role in _several("roles", given["roles"])})),
        speakers=tuple(sorted({checked_label("speakers", name) for name in _several("speakers", given["speakers"])})),
        since=None if given["since"] is None else parse_time("since", given["since"]),
        until=None if given["until"] is None else parse_time("until", given["until"]),
        by=checked_by(given["by"]),
        metadata=metadata,
        context_turns=given["context_turns"],
        exchange=given["exchange"],
        asked=one_of("asked", given["asked"], get_args(Asked)),
        superseded=one_of("superseded", given["superseded"], get_args(Superseded)),
        order=one_of("order", given["order"], (None, *get_args(Order))),
        about=one_of("about", given["about"], (None, *get_args(About))),
        cover=one_of("cover", given["cover"], (None, True, False)),
        weights=DEFAULT if given["weights"] is None else checked_weights(given["weights"]),
        min_relevance=None if least is None else checked_number("min_relevance", least),
    )


def checked_question(query: str, *, k: int, mode: str) -> str:
    """Return the query to search for. Invalid characters are replaced, so that any string is accepted.

    Raises `InvalidInput` for a query that no recall can answer.
    """
    if not isinstance(query, str):
        raise errors.InvalidInput("query", f"expected text, got {type(query).__name__}")
    cleaned = re.sub("[\x00\ud800-\udfff]", _NO_TEXT, query)
    checked_text("query", cleaned)
    checked_whole("k", k)
    one_of("mode", mode, MODES)
    return cleaned


class Floor(NamedTuple):
    """Which hits are returned."""

    least: float
    """Their least relevance."""
    hits_max: float = math.inf
    """How many of them there may be."""

    @property
    def fits(self) -> bool:
        """Whether the best hit fits its question well, as far as a floor was chosen by it."""
        return self.hits_max > FEW


def floor(best: float, given: float | None, mode: Mode) -> Floor:
    """Return the floor of an answer whose best hit has the relevance `best`.

    One that the caller has `given` is obeyed as it is. In `vector` mode relevance comes from another fit, so that
    nothing is left out unless the caller says so.
    """
    if given is not None or mode == VECTOR:
        return Floor(given or 0.0)
    return Floor(FLOOR) if best >= FITS else Floor(FLOOR_WITHOUT, FEW)


def one_of(field: str, value: Any, allowed: Sequence[Any]) -> Any:
    """Return `value` if it is one of those allowed. Raises `InvalidInput`."""
    if value not in allowed:
        raise errors.InvalidInput(field, f"{value!r} is none of {', '.join(map(repr, allowed))}")
    return value


def _several(field: str, values: Sequence[str]) -> Sequence[str]:
    if isinstance(values, str):
        raise errors.InvalidInput(field, f"expected several, as in [{values!r}], got one text")
    check_count(field, len(values), limit=RECALL_FILTERS_MAX, unit=field)
    return values


FORMAT: Final = 2
_CHECK: Final = 4

_FIELD: Final = "after"
_HINT: Final = "give `next` of the page before, and ask the same question"


class Cursor(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The end of a page, where the next one continues."""

    format: int = FORMAT
    log_id: str
    question: bytes
    """The digest of the question."""
    head: Position
    """The position that the first page refers to."""
    moment: Micros
    """When it was judged what holds."""
    as_of: bool
    """Whether the caller gave that position."""
    passed_over: int
    candidates: int
    order: bytes
    """The digest of the hits returned so far, in order."""
    vectors_cover: Position | None
    model: str | None
    ranking: str
    """The name of the ranking that ordered them."""


# Made at import: `checked_json` has the reason.
_DECODER: Final = msgspec.msgpack.Decoder(Cursor)


def encode_cursor(cursor: Cursor) -> str:
    """Return a cursor as text."""
    made = to_msgpack(cursor)
    return urlsafe_b64encode(made + sha256(made).digest()[:_CHECK]).decode().rstrip("=")


def decode_cursor(text: str) -> Cursor:
    """Return the cursor that `encode` encoded. Raises `InvalidInput` for any other text."""
    if not isinstance(text, str):
        raise errors.InvalidInput(_FIELD, f"expected text, got {type(text).__name__}; {_HINT}")
    try:
        stored = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        made, check = stored[:-_CHECK], stored[-_CHECK:]
        cursor = _DECODER.decode(made)
    except (ValueError, msgspec.MsgspecError) as error:
        raise errors.InvalidInput(_FIELD, f"{text[:40]!r} is no cursor of a recall; {_HINT}") from error
    if sha256(made).digest()[:_CHECK] != check or cursor.format != FORMAT:
        raise errors.InvalidInput(_FIELD, f"{text[:40]!r} is no cursor of this mnemolog, or was changed; {_HINT}")
    return cursor


def cursor_refused(why: str) -> errors.InvalidInput:
    """Return the error for a cursor that does not match."""
    return errors.InvalidInput(_FIELD, f"{why}; {_HINT}")


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
_PAST: Final = pattern(
    "did|was|were|had|first|initial\\w*|former\\w*|until|last|all|both|total|between|ever",
    "each(?! (?:day|week|month|year))",
)
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
