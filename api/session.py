"""A handle on one session: record into it, recall from it, keep its working memory, go back and branch off."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from mnemolog.adapters.support import context
from mnemolog.application import previews
from mnemolog.application.session_service import Decision, Sessions
from mnemolog.domain.events import RecordedEvent, SessionStarted
from mnemolog.domain.limits import MemoryLimits
from mnemolog.domain.pending_undo import is_undone
from mnemolog.domain.position import ORIGIN, Micros, Position
from mnemolog.domain.session import new_turn
from mnemolog.domain.spans import Spans, cut
from mnemolog.domain.state import SessionState
from mnemolog.projections.projection_set import ProjectionSet
from mnemolog.projections.read_models import Turn
from mnemolog.projections.recall.answer import Hit, Recall
from mnemolog.projections.recall.prefetch import Prefetcher
from mnemolog.projections.recall.prefetch_ticket import PrefetchResult, Request, Ticket
from mnemolog.projections.recall.question import Mode, question
from mnemolog.projections.recall.service import Recalls
from mnemolog.results import CheckpointAt, NewTurn, RestorePreview
from mnemolog.working_memory import MemoryView, WorkingMemory


class Session(WorkingMemory):
    """A conversation. Cheap to hold; it keeps no turns and no connection of its own."""

    def __init__(
        self,
        sessions: Sessions,
        projections: ProjectionSet,
        recalls: Recalls,
        prefetcher: Prefetcher,
        session_id: str,
        started: SessionStarted,
    ) -> None:
        self._sessions, self._projections = sessions, projections
        self._recalls, self._prefetcher = recalls, prefetcher
        self.id = session_id
        self.name, self.agent, self.scope = started.name, started.agent, started.scope

    def __repr__(self) -> str:
        return f"Session({self.id!r}, name={self.name!r}, agent={self.agent!r}, scope={self.scope!r})"

    def record(
        self,
        role: str,
        text: str,
        *,
        key: str | None = None,
        said_at: datetime | None = None,
        speaker: str | None = None,
        tool_calls: Sequence[Any] = (),
        metadata: Mapping[str, Any] | None = None,
    ) -> Turn:
        """Record what somebody said. Durable when this returns.

        `key` makes a retry safe: the same key with the same content adds nothing and returns the turn
        that is there; with other content it raises `DuplicateKey`. `role` is `user`, `assistant`,
        `system` or `tool`; `said_at` needs a time zone; `text` holds up to 1 MiB of UTF-8, `metadata` and
        `tool_calls` up to 64 KiB each.

        Raises `InvalidInput`, `SessionAlreadyEnded`, `DuplicateKey`, `LogBusy`, `StorageFull`, `StoreClosed`: in
        each case nothing was written.
        """
        turn = new_turn(
            role=role, text=text, speaker=speaker, said_at=said_at, tool_calls=tool_calls, metadata=metadata
        )
        return self._sessions.record(self.id, turn, key=key).turn()

    def reconcile(self, messages: Sequence[Mapping[str, Any] | NewTurn]) -> list[Turn]:
        """Record what is missing of a transcript that is handed over as a whole. Return the turns added.

        Each message is a mapping with `role` and `text` (or `content`), and what else `record` takes; or a
        `NewTurn`, whose `session` is not looked at. They are compared by role and text, or by key where they
        have one, with what the session sees. What is missing is added behind it, in the order given, in one
        transaction. Where messages have keys, or are only added at the end, handing the same transcript over
        again adds nothing; docs/sessions.md has the rule. Raises as `record` does.
        """
        from mnemolog.adapters.support.reconcile import reconcile

        return reconcile(self, self._sessions, messages)

    def recall(
        self,
        query: str,
        *,
        k: int = 5,
        mode: Mode = "hybrid",
        hidden: bool = False,
        scope: str = "",
        roles: Sequence[str] = (),
        speakers: Sequence[str] = (),
        since: datetime | None = None,
        until: datetime | None = None,
        metadata: Mapping[str, Any] | None = None,
        context_turns: int = 0,
        after: str | None = None,
        as_of: int | None = None,
        min_position: int | None = None,
        timeout_s: float = 10.0,
        receipt: bool = False,
        wait_for_model: bool = True,
    ) -> Recall:
        """Recall what this session sees: its own turns and its ancestors' up to the branch point.

        Turns of siblings are never in it. Turns that a rewind or a restore has hidden are left out, unless
        `hidden` is set. With `as_of` it is what the session saw then; `OutsideSession` before it was started.
        Neighbours are those in what it sees, across the branch point. For all else see `MemoryStore.recall`.
        """
        asked = question(
            query,
            k=k,
            mode=mode,
            scope=scope,
            session=self.id,
            lineage=True,
            hidden=hidden,
            roles=roles,
            speakers=speakers,
            since=since,
            until=until,
            metadata=metadata,
            context_turns=context_turns,
        )
        return self._recalls.ask(
            asked,
            as_of=as_of,
            min_position=min_position,
            timeout_s=timeout_s,
            after=after,
            receipt=receipt,
            wait_for_model=wait_for_model,
        )

    def context_for(
        self,
        message: str,
        *,
        k: int = 5,
        scope: str | None = None,
        fresh: bool = False,
        known_after: int | None = None,
        without: Collection[str] = (),
        similarity_min: float = context.SIMILARITY_MIN,
        wait_s: float = context.WAIT_S,
    ) -> list[Hit]:
        """Return up to `k` turns that a message calls to mind, to be put before a model: maybe none.

        First what answers the message itself, then what `prefetch` has found meanwhile, while its stamp holds and
        unless `fresh`. It asks what this session sees, or with `scope` every session at or below that. A model that
        has not answered after `wait_s` seconds holds nobody up: words alone answer, at once where it was stuck before.

        Left out is what this session said behind position `known_after`, for it stands in the model's context; the
        sessions `without`, but those that this one goes on from; all that this one sees, after `mark_undone`; what was
        hidden here, or in the session that said it; and all that answers the message, where nothing has a word in
        common with it, or a similarity of `similarity_min`.

        Raises as `prefetch` does, and as a recall by text.
        """
        asked = Request(session=self.id, query=message, k=k, scope=scope)
        left_out = context.LeftOut(known_after=known_after, sessions=without, similarity_min=similarity_min)
        return context.context_for(self, self._sessions, self._recalls, asked, left_out, fresh=fresh, wait_s=wait_s)

    def prefetch(self, query: str, *, k: int = 5, mode: Mode = "hybrid", scope: str | None = None) -> Ticket:
        """Begin a recall in the background and return at once. A newer one of this session replaces it.

        It asks what this session sees, or with `scope` every session at or below that; the answer is for this session
        alone either way. Raises `InvalidInput`, `UnknownSession`, `StoreClosed`, `StoreForked`.
        """
        return self._prefetcher.submit(Request(session=self.id, query=query, k=k, mode=mode, scope=scope))

    def prefetch_result(self, *, max_behind: int | None = None, wait_s: float = 0.0) -> PrefetchResult:
        """Return the answer to this session's newest prefetch, once, or the reason why there is none.

        It is handed out only as long as nothing has changed under it, in any process: no switch from or to
        this session, no rewind or restore, no other model; and no more than `max_behind` newer events in
        the log, if that is given. Waits up to `wait_s` seconds for one that still runs. Raises nothing
        that went wrong in the background: that is in `PrefetchResult.error`.
        """
        return self._prefetcher.take(self.id, max_behind=max_behind, wait_s=wait_s)

    def turns(
        self,
        *,
        after: Position = ORIGIN,
        before: Position | None = None,
        limit: int = 1_000,
        newest_first: bool = False,
        hidden: bool = False,
    ) -> list[Turn]:
        """Return up to `limit` turns that the session sees, in order, or from the newest back.

        Page on with `after=` the last position of a page, or `before=` it where the newest come first.
        `hidden` shows what a rewind or a restore has hidden as well.
        """
        return self._projections.turns_in(
            self._spans(hidden=hidden), after=after, before=before, limit=limit, newest_first=newest_first
        )

    def rewind(self, *, turns: int | None = None, to: int | None = None) -> int:
        """Hide the last `turns` turns that the session sees, or all behind the log position `to`.

        They stay in the log and in `turns(hidden=True)`. Working memory stays as it is; see `restore`.
        Returns how many turns were hidden. Raises `InvalidInput`, `OutsideSession`, `SessionAlreadyEnded`.
        """
        return self._sessions.rewind(self.id, turns=turns, to=to)

    def mark_undone(self) -> None:
        """Note that turns were taken back and nobody says which, until `rewind_to_transcript` is told what is left.

        Until then `context_for` finds nothing that this session sees, in any process. What was prefetched is dropped.
        A session that has ended is resumed. Raises what every append raises.
        """
        self._sessions.mark_undone(self.id, agent=self.agent)
        self._prefetcher.discard(self.id)

    def undone(self) -> bool:
        """Whether it is open which turns were taken back: after `mark_undone`, before `rewind_to_transcript`."""
        return is_undone(self._state())

    def rewind_to_transcript(
        self, messages: Sequence[Mapping[str, Any] | NewTurn], *, before: str | None = None
    ) -> int:
        """Hide the newest turns, as far as a transcript has them no more: an undo of which nobody says how far it went.

        The counterpart of `reconcile`, with messages as that takes them; a text may be a list of parts. With `before`
        the transcript is looked at up to the newest message in which the user said this: it is not recorded yet.
        What users said is compared, in the last 1,000 turns; docs/frameworks.md has the rule. A transcript that has
        nothing in common with the session, such as a summary, hides nothing.

        Returns how many turns were hidden; `mark_undone` is settled, in the same append. A session that has ended
        stays so. Raises what every append raises.
        """
        from mnemolog.adapters.support.rewind_to_transcript import rewind_to_transcript

        return rewind_to_transcript(self, self._sessions, messages, before=before)

    def preview_rewind(self, *, turns: int | None = None, to: int | None = None) -> int:
        """Return how many turns `rewind` would hide now, without hiding them. Raises as that does."""
        return self._sessions.preview_rewind(self.id, turns=turns, to=to)

    def preview_restore(self, checkpoint: str) -> RestorePreview:
        """Return what `restore` would change now, without changing it. Raises as that does."""
        return previews.restore_preview(self._sessions.preview_restore(self.id, checkpoint), now=self._now())

    def branch(
        self, to: str | None = None, *, at: CheckpointAt | int | str | None = None, name: str | None = None
    ) -> Session:
        """Start a session that goes on from here, or from a checkpoint or log position of this one.

        It sees the turns up to there and begins with the working memory as it was. This session stays as it
        is, and the agent stays in it: `MemoryStore.switch(reason="branch")` moves the agent as well. `at`
        is a position, or a checkpoint, its id or its name.
        """
        position = at.position if isinstance(at, CheckpointAt) else at
        made = self._sessions.branch(self.id, to, at=position, name=name)
        return Session(self._sessions, self._projections, self._recalls, self._prefetcher, made.to, made.started)

    def end(self, *, reason: str = "ended") -> None:
        """End the session: it takes no more turns. Ending it again changes nothing."""
        self._sessions.end(self.id, reason=reason)

    def at(self, position: int) -> SessionAt:
        """Return the session as it was at a log position, for reading. Raises `OutsideSession`."""
        state = self._sessions.state_at(self.id, position)
        moment = self._sessions.log.recorded_at(Position(position))
        return SessionAt(self._projections, state, position=Position(position), moment=moment)

    def _spans(self, *, hidden: bool = False) -> Spans:
        return self._sessions.spans(self.id, hidden=hidden)

    def _state(self) -> SessionState:
        return self._sessions.state(self.id)

    def _now(self) -> Micros:
        return self._sessions.clock.now()

    def _decide(self, decision: Decision) -> list[RecordedEvent]:
        return self._sessions.decide(self.id, decision)

    @property
    def _limits(self) -> MemoryLimits:
        return self._sessions.limits


class SessionAt(MemoryView):
    """A session as it was at a position of the log. Values expired then are not there, later ones are."""

    def __init__(self, projections: ProjectionSet, state: SessionState, *, position: Position, moment: Micros) -> None:
        self._projections, self._then = projections, state
        self.id, self.position = state.session, position
        self._moment = moment

    def __repr__(self) -> str:
        return f"SessionAt({self.id!r}, position={self.position})"

    @property
    def ended(self) -> bool:
        """Whether the session had ended."""
        return self._then.ended

    def turns(
        self,
        *,
        after: Position = ORIGIN,
        before: Position | None = None,
        limit: int = 1_000,
        newest_first: bool = False,
    ) -> list[Turn]:
        """Return up to `limit` turns that the session saw then. See `Session.turns`."""
        return self._projections.turns_in(
            cut(self._then.spans, upto=self.position),
            after=after,
            before=before,
            limit=limit,
            newest_first=newest_first,
        )

    def _state(self) -> SessionState:
        return self._then

    def _now(self) -> Micros:
        return self._moment
