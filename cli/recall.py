"""Commands that ask the memory: recall, context, find, standing; and that audit what was answered."""

import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, TypedDict, Unpack, cast

import msgspec
import typer

from mnemolog.adapters.support.store_access import log_of
from mnemolog.audit.receipt_audit import LIMIT, AuditedReceipt, ReceiptAudit, Verdict
from mnemolog.cli.app import (
    EXIT_FAILED,
    RECEIPTS_VARIABLE,
    AsJson,
    ModelName,
    Store,
    StoreCommand,
    app,
    typed,
)
from mnemolog.cli.command import (
    TEXT_INDENT,
    WHEN,
    AfterPosition,
    AsOf,
    Columns,
    Full,
    answer,
    bar,
    given_time,
    note,
    note_more,
    open_store,
    out,
    position_or_time,
    print_list,
    session_called,
    store_with_model,
)
from mnemolog.defaults import DEFAULT_MODEL
from mnemolog.domain import errors
from mnemolog.domain.display import counted, cut, dated, named, one_line, visible_lines
from mnemolog.domain.events import TurnRecorded
from mnemolog.domain.options import Option, options_of, takes_options
from mnemolog.domain.spelling import normalized
from mnemolog.projections.context.answer import Context, WhyLeftOut
from mnemolog.projections.context.service import TOKENS
from mnemolog.projections.read_models import StandingStatement, Turn
from mnemolog.projections.recall.answer import Hit, Recall
from mnemolog.projections.recall.passages import marked
from mnemolog.projections.recall.phrases import Search, search_for
from mnemolog.projections.recall.question import TEXT, VECTOR, TurnFilters
from mnemolog.store import MemoryStore

BEFORE_PHRASE: Final = 40
"""Characters that are shown before a phrase."""
NOTHING_FITS: Final = "nothing fits the question well"
_BY: Final = {TEXT: "by words", VECTOR: "by meaning"}
_SAME_TURNS: Final = {"recall": "another order", "context": "the same turns, in another text"}
_COLOURS: Final = {Verdict.REPRODUCES: "green", Verdict.DIFFERS: "red", Verdict.UNKNOWN: "yellow"}


Query = Annotated[str, typer.Argument(metavar="QUERY", help="What to look for, in plain words.")]
InSession = Annotated[
    str | None,
    typer.Option("--session", help="Only in this session."),
]


def _filter(field: str, *, more: str = "", **how: Any) -> Any:
    """Return the option for a filter of the library, with its description there."""
    text = re.sub(r"`(since|until|by)`", r"--\1", options_of(TurnFilters)[field][1].means).replace("`", "")
    return typer.Option(help=f"{text[0].upper()}{text[1:]}{more}.", **how)


class FilterFlags(TypedDict):
    """The filters of `find`, `recall` and `context`."""

    scope: Annotated[list[str] | None, typer.Option(help="Only at or below this scope; may be repeated.")]
    role: Annotated[list[str] | None, _filter("roles", more="; may be repeated")]
    speaker: Annotated[list[str] | None, _filter("speakers", more="; may be repeated")]
    since: Annotated[datetime | None, _filter("since", metavar="TIME", parser=given_time)]
    until: Annotated[datetime | None, _filter("until", metavar="TIME", parser=given_time)]
    by: Annotated[Any, _filter("by", metavar="said|recorded", parser=str), Option(default="said")]
    meta: Annotated[
        list[str] | None,
        _filter("metadata", metavar="KEY=VALUE", more="; VALUE as JSON, else as text; may be repeated"),
    ]


class QuestionFlags(FilterFlags):
    """What `recall` and `context` ask."""

    lineage: Annotated[
        bool,
        typer.Option("--lineage", help="With --session: include the turns inherited from its ancestors."),
        Option(default=False),
    ]
    min_relevance: Annotated[
        float | None, typer.Option(metavar="X", help="Only turns of at least this relevance; 0 for all.")
    ]
    order: Annotated[
        str | None, typer.Option(metavar="relevance|time", help="time: in which order the user said things.")
    ]
    about: Annotated[
        str | None,
        typer.Option(metavar="said|answered", help="Prefer what the user said, or what the assistant answered."),
    ]
    asked: Annotated[
        str,
        typer.Option(metavar="skip|keep", help="Skip or keep turns that ask the same as the query."),
        Option(default="skip"),
    ]
    as_of: AsOf
    receipt: Annotated[
        bool | None,
        typer.Option(
            "--receipt/--no-receipt", envvar=RECEIPTS_VARIABLE, help="Record query and answer in the log, for audits."
        ),
    ]
    mode: Annotated[str, typer.Option(help="hybrid, vector or text."), Option(default="hybrid")]


def question_of(flags: QuestionFlags) -> dict[str, Any]:
    """Return what a command line asks, as the library takes it. Raises `InvalidInput`."""
    own = QuestionFlags.__annotations__.keys() - FilterFlags.__annotations__.keys()
    return {name: value for name, value in flags.items() if name in own} | {
        "scope": flags["scope"] or "",
        **filters_of(flags),
    }


def filters_of(flags: FilterFlags) -> TurnFilters:
    """Return the filters that a command line gives, besides its scope. Raises `InvalidInput`."""
    return TurnFilters(
        roles=flags["role"] or (),
        speakers=flags["speaker"] or (),
        since=flags["since"],
        until=flags["until"],
        by=flags["by"],
        metadata=wanted_metadata(flags["meta"] or ()),
    )


@app.command("recall", cls=StoreCommand)
@takes_options
def recall(
    store: Store,
    query: Query,
    k: Annotated[int, typer.Option("-k", "--k", "--limit", "-n", help="Maximum number of turns, up to 1,000.")] = 5,
    session: InSession = None,
    context_turns: Annotated[
        int, typer.Option("--context-turns", metavar="N", help="Show N turns around each hit.")
    ] = 0,
    superseded: Annotated[
        str, typer.Option(metavar="mark|drop", help="Mark or drop evidence of facts that do not hold.")
    ] = "mark",
    exchange: Annotated[
        bool, typer.Option("--exchange", help="Show the reply to a hit, or what it replies to.")
    ] = False,
    after: Annotated[
        str | None,
        typer.Option("--after", metavar="CURSOR", help="Next page: the cursor that the page before printed."),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Print what was searched, and what each hit scored for.")
    ] = False,
    full: Full = False,
    model: ModelName = DEFAULT_MODEL,
    as_json: AsJson = False,
    **asked: Unpack[QuestionFlags],
) -> None:
    """Find the turns that answer a question.

    Example: mnemolog recall memory/ "where does she live?" --scope acme/support --speaker Ada
    """
    with store_with_model(store, model) as opened:
        with bar("searching"):
            found = opened.recall(
                query,
                k=k,
                session=None if session is None else session_called(opened, session).id,
                context_turns=context_turns,
                superseded=cast(Any, superseded),
                exchange=exchange,
                after=after,
                **question_of(asked),
            )
        words = (lambda found: print(found.explain())) if explain else partial(_show_recall, full=full)
        answer(found, words, as_json=as_json)
        if not as_json and asked["as_of"] is None:
            _note_unembedded(opened, found, store, model)


def _note_unembedded(store: MemoryStore, found: Recall, folder: Path, model: str) -> None:
    """Print to stderr that not all turns were searched by meaning, and the command that embeds the rest."""
    if found.vectors_cover is not None and found.vectors_cover < found.head:
        missing = log_of(store).count(topic=TurnRecorded.topic, after=found.vectors_cover, upto=found.head)
        if missing:
            chosen = () if model == DEFAULT_MODEL else ("--model", model)
            have = "has" if missing == 1 else "have"
            note(f"{counted(missing, 'turn')} {have} no vector yet; {typed('project', folder, *chosen)} makes them")


@app.command("find", cls=StoreCommand)
@takes_options
def find(
    store: Store,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The phrase; it may begin and end within a word.")],
    session: InSession = None,
    hidden: Annotated[bool, typer.Option("--hidden", help="Include turns hidden by a rewind or a restore.")] = False,
    after: AfterPosition = "0",
    limit: Annotated[int, typer.Option("--limit", "-n", help="Maximum number of turns.")] = 100,
    full: Full = False,
    as_json: AsJson = False,
    **filters: Unpack[FilterFlags],
) -> None:
    """List the turns that hold a phrase, in the order of the log. No model is needed.

    Example: mnemolog find memory/ "the ferry" --scope acme/support --since 2026-03-01
    """
    search = search_for(text)
    with open_store(store, create=False, background=False) as opened:
        found = opened.find(
            text,
            scope=filters["scope"] or "",
            session=None if session is None else session_called(opened, session).id,
            hidden=hidden,
            after=after,
            limit=limit,
            **filters_of(filters),
        )
    answer(found, partial(_show_found, search=search, full=full), as_json=as_json)
    note_more(found)


@app.command("audit", cls=StoreCommand)
def audit(
    store: Store,
    since: Annotated[
        datetime | None, typer.Option(metavar="TIME", parser=given_time, help="Receipts of this time or later.")
    ] = None,
    after: Annotated[
        Any, typer.Option(metavar=WHEN, parser=position_or_time, help="Receipts recorded after it.")
    ] = "0",
    limit: Annotated[int, typer.Option(metavar="N", help="Maximum number of receipts.")] = LIMIT,
    model: ModelName = DEFAULT_MODEL,
    as_json: AsJson = False,
) -> None:
    """Repeat every receipt's recall or context, as of its head and now. Exit status 1 if one does not reproduce.

    Example: mnemolog audit memory/ --since 2026-11-01
    """
    with store_with_model(store, model) as opened, bar("auditing", of="receipts") as progress:
        found = opened.audit.receipts(since=since, after=after, limit=limit, progress=progress)
    answer(found, _show_audit, as_json=as_json)
    if not found.sound:
        raise typer.Exit(EXIT_FAILED)


def wanted_metadata(given: list[str] | tuple[str, ...]) -> dict[str, Any]:
    """Parse `key=value` arguments as metadata: each value as JSON, or else as text."""
    found: dict[str, Any] = {}
    for item in given:
        key, separator, value = item.partition("=")
        if not separator or not key or key in found:
            raise errors.InvalidInput("meta", f"{item!r}: expected KEY=VALUE, each key once")
        try:
            found[key] = msgspec.json.decode(value)
        except msgspec.DecodeError:
            found[key] = value
    return found


def _show_recall(found: Recall, *, full: bool) -> None:
    """Print hits, best first, with their source, and what the answer is based on."""
    for number, hit in enumerate(found.hits, 1):
        place = (f"{number}.", "bold"), " ", (f"@{hit.position}", "cyan"), f" {dated(hit.said_at)} "
        who = f"{hit.role}/{hit.speaker}" if hit.speaker else hit.role.value
        ranks = ", ".join(f"{_BY[leg]} #{rank}" for leg, rank in hit.ranks.items())
        like = "" if hit.similarity is None else f", similarity {hit.similarity:.2f}"
        out.line(*place, (who, "dim"), "  ", (f"relevance {hit.relevance:.2f}", "green"), f" ({ranks}){like}")
        source = named(hit.session, hit.session_title) + (f" in {hit.scope}" if hit.scope else "")
        out.line(f"   {source}", style="dim")
        around = sorted({turn.position: turn for turn in (*hit.before, *hit.after, *hit.exchange)}.items())
        _show_neighbours([turn for position, turn in around if position < hit.position], full=full)
        out.text(TEXT_INDENT, text=hit.text if full else _passage(hit), full=True, margin=TEXT_INDENT)
        if hit.newer is not None:
            out.line(f"   see also @{hit.newer.position}, later", style="dim")
        if hit.superseded_by is not None:
            out.line(f"   no longer holds: see the fact at @{hit.superseded_by}", style="dim")
        if hit.repeated:
            out.line(f"   said {len(hit.repeated) + 1} times", style="dim")
        _show_neighbours([turn for position, turn in around if position > hit.position], full=full)
    out.line("; ".join(_basis(found)), style="dim")
    if not found.fits:
        note(NOTHING_FITS)
    if found.next is not None:
        print(f"more: --after {found.next}", file=sys.stderr)
    if found.stale is not None:
        note(f"from projections alone, {found.stale}")
    for leg, why in found.unavailable_legs.items():
        note(f"not searched {_BY[leg]}: {why}" if leg in _BY else f"the {leg} did not answer: {why}")
    if found.vectors_lag is not None:
        note(f"the vectors are behind: {found.vectors_lag}")


def _passage(hit: Hit) -> str:
    left_out = len(hit.text) - len(hit.passage.text)
    rest = f" +{left_out:,} characters, --full shows them" if left_out else ""
    return f"{marked(hit.passage, hit.text)}{rest}"


def _basis(found: Recall) -> Iterator[str]:
    """Yield what an answer is based on."""
    how = " and ".join(_BY[leg] for leg in found.legs) or "by nothing"
    then = "" if found.as_of is None else ", as of then"
    yield f"{counted(len(found.hits), 'hit')}, searched {how} up to position {found.head}{then}"
    if found.vectors_cover is not None and found.vectors_cover < found.head:
        yield f"{_BY[VECTOR]} only up to position {found.vectors_cover}"
    if found.left_out:
        yield f"left out: {found.left_out} below {found.min_relevance:g}"
    if found.receipt is not None:
        yield f"receipt @{found.receipt}"


def _show_found(turns: Sequence[Turn], search: Search, *, full: bool) -> None:
    """Print turns that hold a phrase: a line from shortly before the phrase on, or with `full` all of the text."""
    for turn in turns:
        mark = ("", "") if turn.distrusted is None else ("distrusted ", "yellow")
        place = mark, (f"@{turn.position}", "cyan"), f" {dated(turn.said_at)} ", (f"{turn.session} ", "dim")
        who = (f"{turn.speaker or turn.role.value}: ", "bold")
        if full:
            out.text(*place, who, text=turn.text, full=True)
        else:
            out.line(*place, who, _from_phrase(normalized("NFC", turn.text), search(turn.text)))
    out.line(counted(len(turns), "turn"), style="dim")


def _from_phrase(text: str, at: int | None) -> str:
    start = max((at or 0) - BEFORE_PHRASE, 0)
    return ("…" if start else "") + one_line(text[start:])


def _show_neighbours(turns: Sequence[Turn], *, full: bool) -> None:
    for turn in turns:
        who = f"   @{turn.position} {turn.speaker or turn.role.value}: "
        out.text((who, "dim"), text=turn.text, full=full, style="dim")


def _show_audit(audit: ReceiptAudit) -> None:
    """Print the verdict on every receipt, and how today's answer would differ."""
    for item in audit.receipts:
        _show_audited(item)
    out.line(
        f"{counted(len(audit.receipts), 'receipt')}: {audit.reproduced:,} reproduce, {audit.differing:,} do not, "
        f"{audit.unknown:,} cannot be told; {audit.changed_today:,} would differ today",
        style="dim",
    )
    if audit.more:
        out.line(f"more receipts: --after {audit.receipts[-1].position}", style="dim")


def _show_audited(item: AuditedReceipt) -> None:
    place = (f"@{item.position}", "cyan"), f" {dated(item.served_at)} as of {item.head} "
    out.line(*place, (item.verdict.value.replace("-", " "), _COLOURS[item.verdict]), f" {item.query}")
    if item.why:
        out.line(f"   {item.why}")
    if item.today:
        out.line(f"   today: cannot be told: {item.today}")
    elif item.would_differ_today:
        came, went = (", ".join(f"@{position}" for position in turns) for turns in (item.came, item.went))
        parts = [f"{came} came" if came else "", f"{went} went" if went else ""]
        out.line(f"   would differ today: {'; '.join(filter(None, parts)) or _SAME_TURNS[item.kind]}")


_WHY_LEFT_OUT: Final = {
    WhyLeftOut.NO_ROOM: "did not fit",
    WhyLeftOut.BELOW_MIN_RELEVANCE: "not relevant enough",
    WhyLeftOut.REPETITION: "repeated later",
    WhyLeftOut.ENDED: "ended",
}


@app.command("context", cls=StoreCommand)
@takes_options
def context(
    store: Store,
    query: Query,
    tokens: Annotated[int, typer.Option("--tokens", "-t", metavar="N", help="Maximum size, in tokens.")] = TOKENS,
    session: Annotated[str | None, typer.Option(help="Only in this session. Adds its task, values and notes.")] = None,
    cover: Annotated[
        bool | None,
        typer.Option("--cover/--no-cover", help="Much on the topic, each turn in short. Default: as asked."),
    ] = None,
    model: ModelName = DEFAULT_MODEL,
    as_json: AsJson = False,
    **asked: Unpack[QuestionFlags],
) -> None:
    """Print what the memory has on a question, as a text for a prompt. What was left out is noted on stderr.

    Example: mnemolog context memory/ "where does she live?" --tokens 1000 --session trip
    """
    with store_with_model(store, model) as opened, bar("searching"):
        of = None if session is None else session_called(opened, session)
        found = opened.context(query, tokens, session=of, cover=cover, **question_of(asked))
    answer(found, _show_context, as_json=as_json)


STANDING: Columns[StandingStatement] = {
    "kind": lambda said: said.kind.value,
    "text": lambda said: cut(f"{said.key}: {said.text}" if said.key else said.text, full=False),
    "said": lambda said: dated(said.said_at),
    "position": lambda said: str(said.position),
    "speaker": lambda said: said.speaker or "",
    "scope": lambda said: said.scope or "/",
}


@app.command("standing", cls=StoreCommand)
def standing(
    store: Store,
    query: Annotated[str | None, typer.Argument(metavar="[QUERY]", help="Only what holds for this question.")] = None,
    scope: Annotated[str, typer.Option(metavar="PATH", help="Only what was said at or below this scope.")] = "",
    session: Annotated[str | None, typer.Option(help="Only in this session.")] = None,
    as_of: AsOf = None,
    end: Annotated[int | None, typer.Option(metavar="POSITION", help="End what the turn at it says.")] = None,
    reason: Annotated[str, typer.Option(help="Why it ends.")] = "",
    model: ModelName = DEFAULT_MODEL,
    as_json: AsJson = False,
) -> None:
    """List what users said that should hold for every answer, and the facts below standing/; or end such a statement.

    Example: mnemolog standing memory/ "what shall I cook?" --scope acme/support
    """
    if end is not None:
        with open_store(store, create=False, background=False) as opened:
            ended = opened.end_standing(end, reason=reason)
        answer({"ended": ended}, "ended" if ended else "it had ended before", as_json=as_json)
        return
    with store_with_model(store, model) as opened:
        of = None if session is None else session_called(opened, session)
        found = opened.standing(query, scope=scope, session=of, as_of=as_of)
    print_list(found, STANDING, as_json=as_json, last="" if found else "no standing statements")


def _show_context(found: Context) -> None:
    if found.text:
        print(visible_lines(found.text))
    left_out = Counter(item.why for item in found.left_out)
    parts = [f"{count:,} {_WHY_LEFT_OUT[why]}" for why, count in sorted(left_out.items())]
    note("; ".join([f"{found.tokens:,} of {found.budget:,} tokens ({found.counted_by})", *parts]))
    if not found.fits:
        note(NOTHING_FITS)
    if found.stale is not None:
        note(f"from projections alone, {found.stale}")
    for leg, why in found.unavailable_legs.items():
        note(f"the {leg} did not answer: {why}")
    if found.receipt is not None:
        note(f"receipt @{found.receipt}")
