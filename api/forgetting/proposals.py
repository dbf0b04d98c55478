"""Propose acts, and approve or decline what was proposed."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from posixpath import commonpath
from typing import Any, Final, get_args

import msgspec

from mnemolog.application import commands
from mnemolog.application.facts import Distrusts, Facts, ending
from mnemolog.application.visible_events import VisibleEvents
from mnemolog.domain import errors
from mnemolog.domain.event import TO_EVENT, TO_SESSION, without
from mnemolog.domain.events import (
    Act,
    AssertFact,
    DistrustSources,
    EndStanding,
    Forget,
    ProposalDecided,
    ProposalMade,
    RecordedEvent,
    RetractFact,
    SourceDistrusted,
    TurnRecorded,
)
from mnemolog.domain.facts import BECAUSE_MAX, PROPOSALS, proposals_stream, stream_scope
from mnemolog.domain.head import known_at, position_at
from mnemolog.domain.proposals import (
    NO_PROPOSALS,
    OPEN_MAX,
    OPEN_OF_ACTOR_MAX,
    Proposal,
    ProposalState,
    evolve_proposals,
)
from mnemolog.domain.proposals import Proposals as State
from mnemolog.domain.request import current_actor, current_request_key
from mnemolog.domain.result import Results, name_of
from mnemolog.domain.scope import ROOT, Boundary, Scope, covered, parse_scopes
from mnemolog.domain.session import session_of
from mnemolog.domain.standing import standing_in
from mnemolog.domain.stream_fold import FoldedState
from mnemolog.domain.values import (
    DESCRIPTION_BYTES_MAX,
    Clock,
    Position,
    Time,
    When,
    check_count,
    checked_position,
    checked_text,
    checked_whole,
    parse_time,
)
from mnemolog.forgetting.plan import ForgetSelector
from mnemolog.forgetting.service import Forgetting
from mnemolog.infra.log.transaction import Transaction
from mnemolog.infra.runtime.lru_cache import LruCache
from mnemolog.projections.projection_set import ProjectionSet
from mnemolog.projections.read_models import Turn
from mnemolog.projections.recall.question import one_of
from mnemolog.projections.sql import fact_queries as tables

STREAMS_KEPT_MAX: Final = 256
"""Scopes whose proposals are kept in memory."""
EDITED: Final = ("key", "value", "valid_from")
"""What an approval may change in a proposed fact."""
_NOTHING_LEFT: Final = "nothing is left for it to do"

Work = Callable[[Transaction], Any]
"""Does an act. Returns something false if there was nothing to do."""


class Proposals:
    """The proposals in one log, as far as its boundary shows them."""

    def __init__(
        self,
        visible: VisibleEvents,
        projections: ProjectionSet,
        facts: Facts,
        forgetting: Forgetting,
        *,
        clock: Clock,
        four_eyes: bool,
    ) -> None:
        """With `four_eyes` a proposal needs another one to approve it."""
        self._visible = visible
        self._log = visible.log
        self._projections = projections
        self._facts = facts
        self._forgetting = forgetting
        self._clock = clock
        self.four_eyes = four_eyes
        self._kept: LruCache[str, FoldedState[State]] = LruCache(STREAMS_KEPT_MAX)

    def propose(
        self, act: Act, *, why: str, because: Sequence[Turn | int], until: Time | None, scope: str | None
    ) -> Proposal:
        """See `MemoryStore.propose`."""
        turns = {item.position if isinstance(item, Turn) else checked_position("because", item) for item in because}
        check_count("because", len(turns), limit=BECAUSE_MAX, unit="turns")
        act = _checked(act)
        if isinstance(act, DistrustSources | Forget):
            act = msgspec.structs.replace(act, session=[self._visible.id_of(item) for item in act.session])
        made = ProposalMade(
            act=act,
            why=checked_text("why", why, bytes_max=DESCRIPTION_BYTES_MAX) if why else "",
            because=sorted(turns),
            until=None if until is None else parse_time("until", until),
        )
        if made.until is not None and made.until <= self._clock.now():
            raise errors.InvalidInput("until", "it would have expired already")
        of = self._visible.boundary.one(self._scope_of(act) if scope is None else scope)
        stream = proposals_stream(of)
        key = current_request_key()
        head = self._log.head().position
        if key is None or self._log.position_of(stream, key) is None:
            tried = Proposal(position=Position(head + 1), scope=of, because=tuple(map(Position, made.because)))
            if not self._visible.transact(self._doing(tried, act), dry_run=True):
                raise errors.InvalidInput("act", _NOTHING_LEFT)

        def work(tx: Transaction) -> RecordedEvent:
            self._visible.require_turns(tx, "because", made.because)
            waiting = [item for item in self._in(tx, stream).values() if item.at(self._clock.now()).state == "open"]
            own = sum(item.proposed_by == current_actor() for item in waiting)
            if key is None or tx.find(stream, key) is None:
                check_count("act", len(waiting) + 1, limit=OPEN_MAX, unit="open proposals of this scope")
                check_count("act", own + 1, limit=OPEN_OF_ACTOR_MAX, unit="open proposals of one actor in this scope")
            return commands.append_once(tx, stream, lambda: [made], key=key)[-1]

        position = self._visible.transact(work).position
        return self._state(stream, None)[position]

    def all(
        self, scope: str | Sequence[str], state: ProposalState | None, as_of: When | None, after: When, limit: int
    ) -> Results[Proposal]:
        """See `MemoryStore.proposals`."""
        checked_whole("limit", limit)
        if state is not None:
            one_of("state", state, get_args(ProposalState))
        begin = position_at("after", after, self._log)
        within = self._visible.boundary.narrow(parse_scopes(scope))
        found = sorted(
            (
                item
                for item in self._each(as_of)
                if item.position > begin and covered(within, item.scope) and state in (None, item.state)
            ),
            key=lambda item: item.position,
        )
        results = Results(self._with_change(item, as_of) for item in found[:limit])
        results.next = found[limit - 1].position if len(found) > limit else None
        return results

    def decide(
        self,
        positions: int | Proposal | Iterable[int | Proposal],
        *,
        edits: Mapping[Any, Mapping[str, Any]] | None = None,
        declined: str | None = None,
        dry_run: bool = False,
    ) -> Results[Proposal]:
        """Approve proposals, or with a reason decline them. See `MemoryStore.approve` and `MemoryStore.decline`."""
        given = [positions] if isinstance(positions, int | Proposal) else positions
        named = [checked_position("positions", name_of(item, Proposal, "positions")) for item in given]
        made = {position: self.made(position) for position in dict.fromkeys(named)}
        changes = {str(position): edit for position, edit in (edits or {}).items()}
        for unknown in changes.keys() - {*map(str, made)}:
            raise errors.InvalidInput("edits", f"{unknown!r} is no position among those that are approved")
        reason = "" if declined is None else checked_text("reason", declined)
        wanted = "approved" if declined is None else "declined"
        works = dict[int, Work]()
        for position, item in made.items():
            if item.act is not None and item.state == "open" and declined is None:
                edit = changes.get(str(position), {})
                act = _edited(item.act, edit)
                with _superseded(position, edit):
                    works[position] = self._doing(item, act)

        def work(tx: Transaction) -> list[Proposal]:
            for position, item in made.items():
                stream = proposals_stream(item.scope)
                if (known := self._in(tx, stream).get(position)) is None:
                    raise _no_proposal(position)
                if (state := known.at(self._clock.now()).state) == wanted:
                    continue
                if state != "open":
                    raise errors.InvalidInput("positions", f"the proposal at position {position} is {state}")
                if declined is None:
                    if self.four_eyes and known.proposed_by == current_actor():
                        why = f"the proposal at position {position} is your own; another person has to approve it"
                        raise errors.InvalidInput("positions", why)
                    with _superseded(position, changes.get(str(position), {})):
                        if not works[position](tx):
                            raise errors.SupersededProposal(_NOTHING_LEFT, position=position)
                decided = ProposalDecided(
                    proposal=position,
                    approved=declined is None,
                    done=tx.head if declined is None else None,
                    proposed_by=known.proposed_by,
                    reason=reason,
                )
                tx.append(stream, decided)
            return [self._in(tx, proposals_stream(item.scope))[item.position] for item in made.values()]

        forgets = any(isinstance(made[Position(position)].act, Forget) for position in works)
        with self._forgetting.carrying_out() if forgets and not dry_run else nullcontext():
            return Results(self._visible.transact(work, dry_run=dry_run))

    def _doing(self, proposal: Proposal, act: Act) -> Work:
        """Return the work that does an act now. What it reaches is inside of the scope of its proposal."""
        position, scope = proposal.position, proposal.scope
        match act:
            case AssertFact():
                how = {name: getattr(act, name) for name in ("valid_from", "corrects", "reason", "maker")}
                _, work = self._facts.asserting(
                    act.key, act.value, scope=scope, proposal=proposal, because=proposal.because, **how
                )
                return work
            case RetractFact():
                return self._facts.retracting(act, position)
            case EndStanding():
                return ending(self._visible, act.statement, reason=act.reason, proposal=position)
            case DistrustSources():
                _, distrust = self._distrusting(proposal, act)
                return distrust
        forget = self._forgetting.requesting(self._selector(scope, act), reason=act.reason, proposal=position)
        return lambda tx: forget(tx).request

    def _distrusting(self, proposal: Proposal, act: DistrustSources) -> tuple[SourceDistrusted, Work]:
        return Distrusts(self._inside(proposal.scope), self._projections).distrusting(
            act.positions,
            act.session,
            actor=act.actor,
            maker=act.maker,
            reason=act.reason,
            proposal=proposal.position,
        )

    def _selector(self, scope: Scope, act: Forget) -> ForgetSelector:
        inside = self._inside(scope)
        inside.require(act.session, act.positions)
        return ForgetSelector(
            visible=inside,
            sessions=frozenset(act.session),
            scopes=tuple(
                scope for item in act.scope for scope in inside.boundary.narrow(parse_scopes(item)) or (ROOT,)
            ),
            positions=frozenset(act.positions),
            questions=act.questions,
            now=self._clock.now(),
            despite_minimum=act.despite_minimum,
        )

    def _inside(self, scope: Scope) -> VisibleEvents:
        boundary = self._visible.boundary
        return self._visible.within(Boundary(boundary.narrow((scope,)), boundary.has)) if scope else self._visible

    def _scope_of(self, act: Act) -> str | None:
        """Return the scope that covers all that an act names; None if it names nothing."""
        named: dict[msgspec.Meta, set[Any]] = {TO_EVENT: set(), TO_SESSION: set()}
        without(act, lambda mark, item: named[mark].add(item))
        scopes, sessions = [*getattr(act, "scope", ())], named[TO_SESSION]
        for _, stream in self._log.streams_at(sorted(named[TO_EVENT])) if named[TO_EVENT] else ():
            if (session := session_of(stream)) is None:
                scopes.append(stream_scope(stream) or ROOT)
            else:
                sessions.add(session)
        states = (self._visible.states.latest(session) for session in sessions)
        scopes += [state.started.scope for state in states if state is not None]
        return commonpath(scopes) if scopes else None

    def _with_change(self, item: Proposal, as_of: When | None) -> Proposal:
        """Return an open proposal with what is so now, and what would be so then."""
        act = item.act if item.state == "open" else None
        match act:
            case AssertFact() | RetractFact():
                with self._facts.reading({"as_of": as_of}) as (connection, known, _):
                    without = set(act.assertions) if isinstance(act, RetractFact) else set()
                    rows = tables.at(connection, sorted(without))
                    key = act.key if isinstance(act, AssertFact) else rows[0].key if rows else ""
                    now = tables.belief(connection, item.scope, key, known)
                    left = tables.belief(connection, item.scope, key, known, without=without)
                then = act.value if isinstance(act, AssertFact) else tables.value_of(left)
                at = None if now is None else now.decides.position
                return msgspec.structs.replace(item, now=tables.value_of(now), then=then, now_at=at)
            case EndStanding():
                found = self._log.event_at(Position(act.statement))
                shown = found is not None and self._visible.shows_stream(found.stream)
                if found is not None and shown and isinstance(found.event, TurnRecorded):
                    text = found.event.text
                    said = [text[part.start : part.end] for part in standing_in(text)]
                    return msgspec.structs.replace(item, now=said, then=[], now_at=found.position)
            case DistrustSources():
                source, _ = self._distrusting(item, act)
                return msgspec.structs.replace(
                    item, takes={"turns and facts": Distrusts(self._visible, self._projections).covers(source)}
                )
            case Forget() if as_of is None:
                with suppress(errors.MnemologError):  # It can be listed, though a hold stands in its way.
                    forget = self._forgetting.requesting(self._selector(item.scope, act), reason="")
                    return msgspec.structs.replace(item, takes=self._visible.transact(forget, dry_run=True).counts)
        return item

    def waiting(self) -> int:
        """Return how many proposals are open now."""
        return sum(item.state == "open" for item in self._each(None))

    def _each(self, as_of: When | None) -> Iterator[Proposal]:
        """Yield the proposals of every scope, as they are now or were as of a position or time."""
        known = None if as_of is None else known_at("as_of", as_of, self._log)
        now = self._clock.now() if known is None else known.valid_at
        with self._log.reading() as reads:
            streams = [row[1] for row in reads.beginnings(ProposalMade.topic)]
        for stream in filter(self._visible.shows_stream, streams):
            for item in self._state(stream, None if known is None else known.upto).values():
                yield item.at(now)

    def made(self, position: Position) -> Proposal:
        """Return a proposal without what it would change. Raises `InvalidInput`."""
        found = self._log.event_at(position)
        stream = "" if found is None else found.stream
        shown = stream.startswith(PROPOSALS) and self._visible.shows_stream(stream)
        made = self._state(stream, None).get(position) if shown else None
        if made is None:
            raise _no_proposal(position)
        return made

    def _state(self, stream: str, upto: Position | None) -> State:
        """Return the proposals of a scope. What was folded before is not read again."""
        folded = self._log.fold(stream, evolve_proposals, upto=upto, known=self._known)
        if upto is None:
            self._kept.put(stream, folded)
        return folded.state or NO_PROPOSALS

    def _known(self, stream: str, position: Position | None) -> FoldedState[State] | None:
        kept = self._kept.get(stream)
        return kept if kept is not None and (position is None or kept.position <= position) else None

    def _in(self, tx: Transaction, stream: str) -> State:
        return tx.fold(stream, evolve_proposals, self._known) or NO_PROPOSALS


def _checked(act: Any) -> Act:
    """Return an act as it can be stored. Raises `InvalidInput`."""
    try:
        checked: Act = msgspec.convert(msgspec.to_builtins(act), type=Act)
    except (msgspec.ValidationError, TypeError, RecursionError) as error:
        kinds = ", ".join(str(kind.__struct_config__.tag) for kind in get_args(Act))
        raise errors.InvalidInput("act", f"{error}; what it does (`do`) is one of {kinds}") from error
    return checked


def _edited(act: Act, edit: Mapping[str, Any]) -> Act:
    if edit == {}:
        return act
    if not isinstance(act, AssertFact) or not isinstance(edit, Mapping) or not edit.keys() <= {*EDITED}:
        raise errors.InvalidInput("edits", f"of a proposed fact can be changed: {', '.join(EDITED)}; of others nothing")
    return _checked(msgspec.structs.replace(act, **edit))


@contextmanager
def _superseded(position: int, edit: Mapping[str, Any]) -> Iterator[None]:
    """Raise `SupersededProposal` where what was right as it was proposed is refused now. An edit may be wrong."""
    try:
        yield
    except errors.InvalidInput as error:
        if error.field in edit:
            raise
        raise errors.SupersededProposal(error.args[0], position=position) from error


def _no_proposal(position: int) -> errors.InvalidInput:
    return errors.InvalidInput("positions", f"position {position} is no proposal, or it was forgotten")
