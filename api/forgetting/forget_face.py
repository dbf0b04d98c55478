"""What a store forgets, and what it tells of that."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mnemolog.domain.limits import LABEL_BYTES_MAX, checked_text
from mnemolog.domain.lineage import checked_position
from mnemolog.domain.scope import parse_scope
from mnemolog.forgetting import history as forgetting_record
from mnemolog.forgetting.plan import Wish
from mnemolog.forgetting.results import Erasure, ForgetReport, ForgottenEvent, ReapplyReport
from mnemolog.forgetting.service import Forgetting
from mnemolog.infra.log.event_log import EventLog
from mnemolog.projections.ports import Progress
from mnemolog.session import Session


class Forgets:
    """The part of a store's face that makes content unreadable for ever."""

    _log: EventLog
    _forgetting: Forgetting

    def forget(
        self,
        *,
        session: Session | str | Sequence[Session | str] = (),
        positions: Iterable[int] = (),
        scope: str | Sequence[str] = (),
        reason: str = "",
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> ForgetReport:
        """Forget content for ever: of sessions, of all sessions in scopes, or of single events by their positions.

        Text, speakers, metadata, values, tasks, notes, checkpoints' names and sessions' names cannot be read any more,
        by nobody and in no file of the store; of sessions and scopes also the receipts of recalls that were asked in
        them. What happened stays countable, and `verify` finds the history whole. Hidden turns are included, and
        branches do not see forgotten turns of their ancestors either. What is recorded afterwards stays.

        Ids, scopes, agents, idempotency keys and times are labels, no content: they stay (docs/forgetting.md). So
        does `reason`. With `dry_run` nothing is written. Where something is in the way, `pending` says what: keys are
        destroyed first, the rest is done when the store is opened next, or by the next `forget`.

        Raises `UnknownSession`, `InvalidInput` (also for a store without encryption), `KeysMissing`, `LogBusy` where
        another process forgets for long: nothing was written.
        """
        given = session if isinstance(session, Sequence) and not isinstance(session, str) else [session]
        wish = Wish(
            sessions=frozenset(item if isinstance(item, str) else item.id for item in given),
            scopes=tuple(parse_scope(item) for item in ([scope] if isinstance(scope, str) else scope)),
            positions=frozenset(checked_position("positions", position) for position in positions),
        )
        if reason:
            checked_text("reason", reason, bytes_max=LABEL_BYTES_MAX)
        return self._forgetting.forget(wish, reason=reason, dry_run=dry_run, progress=progress)

    def forgotten(self) -> list[ForgottenEvent]:
        """Return every event whose content was forgotten, in the order of the requests. Needs no keys."""
        return list(forgetting_record.forgotten(self._log))

    def erasures(self) -> list[Erasure]:
        """Return all requests to forget, to be kept apart from backups of log and keys. They hold no content."""
        return self._forgetting.erasures()

    def reapply_erasures(self, erasures: Sequence[Erasure], *, progress: Progress | None = None) -> ReapplyReport:
        """Do again what was forgotten after the copies were made that this store was restored from.

        Where only the log or only the keys are older, opening the store does so by itself. What is known is passed
        over. Raises as `forget` does.
        """
        return self._forgetting.reapply(erasures, progress=progress)
