"""What a caller asks of a store's memory, and an auditor of its answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from mnemolog.audit.receipt_audit import LIMIT, RecallAudit, audit_recalls
from mnemolog.domain.clock import to_micros
from mnemolog.infra.log.event_log import EventLog
from mnemolog.projections.ports import Progress
from mnemolog.projections.projection_set import OpenedProjections
from mnemolog.projections.recall.answer import Recall
from mnemolog.projections.recall.question import Mode, question
from mnemolog.projections.recall.service import TIMEOUT_S, Recalls
from mnemolog.projections.recall.weights import Weights


class Recalling:
    """The part of a store's face that recalls."""

    _log: EventLog
    _recalls: Recalls
    _projections: OpenedProjections

    def recall(
        self,
        query: str,
        *,
        k: int = 5,
        scope: str = "",
        session: str | None = None,
        lineage: bool = False,
        roles: Sequence[str] = (),
        speakers: Sequence[str] = (),
        since: datetime | None = None,
        until: datetime | None = None,
        metadata: Mapping[str, Any] | None = None,
        mode: Mode = "hybrid",
        neighbours: int = 0,
        weights: Weights | None = None,
        after: str | None = None,
        as_of: int | None = None,
        at_least: int | None = None,
        timeout_s: float = TIMEOUT_S,
        receipt: bool = False,
        wait_for_model: bool = True,
    ) -> Recall:
        """Return up to `k` turns (at most 1,000) that answer `query`, best first; ties by position.

        Filters: `scope` and all below it; the own turns of `session`, or with `lineage` all that it sees; any of
        `roles`; any of `speakers`; said at `since` or later and before `until`; every key of `metadata` with
        exactly that JSON value. `neighbours` (0 to 20) gives each hit the turns around it.
        `weights` says how much each ingredient of the order counts (docs/recall.md).

        `after` is `Recall.next` of the page before: the order goes on as it was when the first was asked.
        `as_of` is an offset: the answer is what it would have been when the log ended there (docs/recall.md).
        `receipt` appends what was asked and answered to the log (`audit_recalls`).

        The text leg sees every turn acknowledged before the call. The vector leg embeds up to 64 new texts
        by itself; how far it goes is in `Recall.vectors_to`. In `hybrid` mode a vector leg that cannot
        answer leaves the text answer and its reason in `Recall.not_answering`; in `vector` mode it raises.
        With `at_least` the vectors cover that position, embedding here what is missing: else it raises
        `ProjectionBehind` after `timeout_s` seconds, or at once where something is in the way.
        Without `wait_for_model` a `hybrid` recall is answered by text alone as long as the model is not loaded, and
        says so in `Recall.not_answering`; `load_model` loads it.

        Raises `InvalidInput` for an empty query, a filter that is none, a position past the head or a cursor of
        another question, `UnknownSession`, and `OutsideSession` for a session that was not there at `as_of`.
        """
        asked = question(
            query,
            k=k,
            mode=mode,
            scope=scope,
            session=session,
            lineage=lineage,
            roles=roles,
            speakers=speakers,
            since=since,
            until=until,
            metadata=metadata,
            neighbours=neighbours,
            weights=weights,
        )
        return self._recalls.ask(
            asked,
            as_of=as_of,
            at_least=at_least,
            timeout_s=timeout_s,
            after=after,
            receipt=receipt,
            wait_for_model=wait_for_model,
        )

    def load_model(self) -> None:
        """Load the model that answers, and its vectors, so that no recall waits for them.

        Raises `ModelUnavailable`, `ModelMismatch`.
        """
        self._projections.vectors().load()

    def audit_recalls(
        self,
        *,
        since: datetime | None = None,
        after: int = 0,
        limit: int = LIMIT,
        progress: Progress | None = None,
    ) -> RecallAudit:
        """Ask every receipt again, as of its head and now: those behind position `after`, made at `since` or later.

        Says of each whether it reproduces, and which turns would come and go if it were asked today. Where the
        model that answered is not at hand it says so. Nothing raises for what is found. Raises `InvalidInput`.
        """
        moment = None if since is None else to_micros("since", since)
        return audit_recalls(self._log, self._recalls, since=moment, after=after, limit=limit, progress=progress)
