"""Results of forgetting."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

import msgspec

from mnemolog.domain import errors
from mnemolog.domain.encoding import UNDECODABLE
from mnemolog.domain.events import ForgetTarget
from mnemolog.domain.head import Head
from mnemolog.domain.position import Position, UtcTime
from mnemolog.domain.result import Result
from mnemolog.infra.runtime.files import read_file


class NodeStatus(Result, frozen=True, kw_only=True):
    """A node of a log in PostgreSQL: a folder on some machine with projections of the log."""

    called_by = "node"

    node: str
    """Its random id."""
    label: str
    """Its host and folder."""
    here: bool
    """Whether it is the folder of this store."""
    opened_at: UtcTime
    seen_at: UtcTime
    """When it last noted something: when it was opened or closed, after a purge, else once a minute while it reads."""
    position: Position
    """How far its views had read the log then."""
    behind_events: int
    purged: Position
    """What was forgotten up to this position is gone from its projections."""


Kind = Literal["names", "questions", "keys", "files", "nodes", "digests", "scopes"]


class Remainder(Result, frozen=True, kw_only=True):
    """Something of what was forgotten, or about it, that is known to remain."""

    kind: Kind
    says: str
    items: tuple[str, ...] = ()
    """The first of them, up to 100."""


class Statements(Result, frozen=True, kw_only=True):
    """What the store says. No export of the log can prove it."""

    keys_destroyed: int
    """Events whose keys were destroyed."""
    complete: bool
    """Whether keys and projections of the node that did it were rewritten without them."""
    confirmed_by: tuple[str, ...]
    """Nodes of a log in PostgreSQL whose projections have none of it, as long as others are waited for."""
    waiting_for: tuple[str, ...]
    """Nodes that have not confirmed it."""


class Certificate(Result, frozen=True, kw_only=True):
    """What a request to forget took. An export proves all but `statements` and `remains` (docs/verify_export.py).

    What it counts is counted as of the request. Once it says `complete` and waits for no node, it stays the same.
    """

    format: str = "mnemolog-certificate"
    version: int = 1
    log_id: str
    request: str
    requested_at: UtcTime
    reason: str
    actor: str
    scopes: tuple[str, ...]
    """The scopes that the caller was bound to; none for a caller who was not."""
    facts_kept: int
    """How many facts stay although all turns went that they rest on."""
    despite_minimum: str
    """Why it was forgotten although a minimum age had not passed; empty where it had."""
    asked: tuple[ForgetTarget, ...]
    """What was asked, as it is in the log: versions of streams, and how many events with content these are."""
    positions: tuple[tuple[int, int], ...]
    """The positions of these events, as ranges with both ends: the first 1,000. `asked` has all."""
    before: Head
    """The head of the log before the request."""
    requested: Head
    """Position and digest of `forget.requested`."""
    erased: Head | None
    """Position and digest of the `content.forgotten` that ends the request; None if its keys are still there."""
    after: Head
    """Of `forget.completed`; if it is not complete, of the last of these events."""
    statements: Statements
    remains: tuple[Remainder, ...]
    """What is known to remain."""


class AskedQuestion(Result, frozen=True, kw_only=True):
    """A recall or a context with a receipt, asked in a scope that covers what is forgotten: it may quote that."""

    position: Position
    asked_at: UtcTime
    scope: str
    """The scope that was searched; of a question of a session, that of the session."""
    session: str | None
    """The session that asked; None if none did."""
    query: str
    """With `dry_run` only."""
    stays: bool
    """Whether it is kept."""


class ForgetReport(Result, frozen=True, kw_only=True):
    """What was forgotten, or with `dry_run` would be."""

    request: str | None
    """Id of the request. None if none was made: a dry run, or no content was left to forget."""
    position: Position | None
    """Position of the request in the log."""
    dry_run: bool
    sessions: tuple[str, ...]
    """Sessions that are forgotten entirely; their structure stays."""
    events: int
    """Events that had content."""
    counts: dict[str, int]
    """By topic."""
    dependents: int = 0
    """How many of the events were not named but depend on named ones: facts that rest on them alone, with their
    retractions, and later checkpoints and writes of threads, which cannot be read without them."""
    questions: int = 0
    """How many are receipts of questions that were asked above or beside the content, and may quote it."""
    questions_left: int = 0
    """How many of these stay."""
    facts_kept: int = 0
    """How many facts stay although all turns go that they rest on: a rule of retention keeps those that hold."""
    asked: tuple[AskedQuestion, ...] = ()
    """The first of both, up to 100."""
    pending: str | None = None
    """What had to wait, and why: rewriting the keys' files, or the projections'. No answer has the content any more.
    Every process that has the store open tries again, about once a minute, and so does the next `open`."""
    confirmed_by: tuple[NodeStatus, ...] = ()
    """Nodes of a log in PostgreSQL whose files have none of it any more, this one among them."""
    waiting_for: tuple[NodeStatus, ...] = ()
    """The other nodes. They serve nothing of it either; `store.audit.pending_erasures` lists who has not confirmed."""
    outside: str = ""
    """For a caller that is bound to scopes, what that means: the same sentence for every request. Else empty."""
    certificate: Certificate | None = None
    """What to keep of it. None if there was no request."""

    @property
    def complete(self) -> bool:
        """Whether all copies are gone from the files of the store, for a log in PostgreSQL from those of this node."""
        return self.pending is None


class Requested(Result, frozen=True, kw_only=True):
    """Which request to forget something is about, when it was made, why and by whom."""

    request: str
    requested_at: UtcTime
    reason: str
    actor: str = ""
    """Who requested it; empty if none was given."""


class ForgottenEvent(Requested, frozen=True, kw_only=True):
    """An event whose content was forgotten: its position and kind, when and why."""

    position: Position
    stream: str
    topic: str


class Erasure(Requested, frozen=True, kw_only=True):
    """A request to forget, or a revoked token: to apply again to a store restored from an older backup.

    A token has no request, and `requested_at` is when it was revoked. A store that applies it records its own actor.
    """

    targets: tuple[ForgetTarget, ...]
    token: str = ""
    """The id of a token that was revoked; empty for a request to forget."""


# Made at import: `mnemolog.projections.sql.checked_json` has the reason.
_DECODER: Final = msgspec.json.Decoder(list[Erasure])


class PendingErasure(Requested, frozen=True, kw_only=True):
    """A request to forget that is not carried out everywhere."""

    complete: bool
    """Whether the node that carried it out has done so. If not, every process that has the store open tries again."""
    waiting_for: tuple[NodeStatus, ...]
    """Nodes of a log in PostgreSQL that have not confirmed it."""


class ReapplyReport(Result, frozen=True, kw_only=True):
    """The result of applying erasures again to a restored store."""

    erasures: int
    requested: int
    """Requests that its log did not have."""
    revoked: int = 0
    """Tokens that were revoked again."""
    pending: str | None = None
    """What is not done yet, and why."""


class ForgettingStatus(Result, frozen=True, kw_only=True):
    """The progress of requests to forget."""

    requests: int
    events: int
    """Events whose content was erased."""
    pending: tuple[str, ...]
    """Requests that are not done yet."""


def read_erasures(file: Path) -> list[Erasure]:
    """Return the erasures in a JSON file. Raises `InvalidInput` for any other file."""
    try:
        return _DECODER.decode(read_file(file, follow=True))
    except (OSError, *UNDECODABLE) as error:
        raise errors.InvalidInput("erasures", f"{file} does not hold erasures: {error}; nothing was changed") from error
