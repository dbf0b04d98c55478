"""The events of a log: facts in the past tense, frozen, in the words of the domain.

Rules of evolution (docs/adr/0005-event-names-and-evolution.md): an event is stored under its `topic`, a
name we chose, never under a Python path. A field may be added with a default; a default never changes,
because fields equal to their default are not stored. A changed meaning is a new topic (`.v2`) and an
upcaster, tested against stored bytes in `tests/golden/`.
"""

import re
from typing import Annotated, Any, ClassVar, Final

import msgspec

from mnemolog.domain.event import TO_EVENT, TO_SESSION, Age, Count, Moment, Ordinal, RequestedEvent, Share
from mnemolog.domain.event import Event as Event
from mnemolog.domain.items import ItemDeleted, ItemPut, ItemTouched
from mnemolog.domain.message import Role
from mnemolog.domain.threads import (
    Blob,
    ThreadCheckpointed,
    ThreadCopied,
    ThreadDeleted,
    ThreadPruned,
    ThreadWritten,
)
from mnemolog.domain.values import By, Micros, Position, Version, to_datetime


class SessionStarted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """An agent began a conversation. The first event of a session's stream."""

    topic: ClassVar[str] = "session.started.v1"

    title: str = msgspec.field(name="name")
    """A label for people; not unique. Empty if there is none, or if it was forgotten. Stored as `name`."""
    agent: str
    scope: str = ""
    reason: str = "new"
    parent: Annotated[str, TO_SESSION] | None = None
    """The session this one was branched from. Without `branched_at`: the session it belongs to but sees nothing of."""
    branched_at: Ordinal | None = None
    sealed_title: bytes = msgspec.field(name="sealed_name", default=b"")
    """The encrypted title, where content is encrypted. Empty in memory: reading the log decrypts it into `title`."""


class TurnRecorded(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A turn was said in a session."""

    topic: ClassVar[str] = "turn.recorded.v1"

    role: Role
    text: str
    speaker: str | None = None
    said_at: Moment | None = None
    """Microseconds since the Unix epoch; None when the caller gave no time."""
    tool_calls: list[Any] = []
    metadata: dict[str, Any] = {}
    original: Blob | None = None
    """The turn in the caller's own format (`mnemolog.domain.session.Original`). Deflated with the end of its text."""


class SessionEnded(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The conversation is over: its stream takes no more turns."""

    topic: ClassVar[str] = "session.ended.v1"

    reason: str = "ended"


class SessionResumed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A conversation that had ended was resumed."""

    topic: ClassVar[str] = "session.resumed.v1"

    reason: str = ""


class ValueSet(RequestedEvent, frozen=True, kw_only=True, omit_defaults=True):
    """A key of the session's working memory was given a value, `None` included."""

    topic: ClassVar[str] = "value.set.v1"

    key: str
    value: Any
    """Any JSON value. Always stored, so that `None` is a value and not an absence."""
    expires_at: Moment | None = None
    """When the value expires, in microseconds since the Unix epoch; None for never."""


class ValueDeleted(RequestedEvent, frozen=True, kw_only=True, omit_defaults=True):
    """A key of the session's working memory was removed."""

    topic: ClassVar[str] = "value.deleted.v1"

    key: str


class ValuesCleared(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Every key of the session's working memory was removed. Task and notes stay."""

    topic: ClassVar[str] = "values.cleared.v1"


class TaskChanged(RequestedEvent, frozen=True, kw_only=True, omit_defaults=True):
    """What the session is working on, as a whole, after the change."""

    topic: ClassVar[str] = "task.changed.v1"

    description: str
    step: Count | None = None
    total: Count | None = None
    percent: Annotated[float, msgspec.Meta(ge=0, le=100)] | None = None
    """0 to 100."""
    status: str = "active"


class NoteAdded(RequestedEvent, frozen=True, kw_only=True, omit_defaults=True):
    """A note was put at the end of the session's scratchpad."""

    topic: ClassVar[str] = "note.added.v1"

    text: str


class NotesCleared(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The session's scratchpad was emptied."""

    topic: ClassVar[str] = "notes.cleared.v1"


class CheckpointCreated(RequestedEvent, frozen=True, kw_only=True, omit_defaults=True):
    """A moment was named. It copies nothing: its state is that of the session at this event's position."""

    topic: ClassVar[str] = "checkpoint.created.v1"

    id: str
    name: str
    description: str = ""


class CheckpointDeleted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A checkpoint can no longer be restored."""

    topic: ClassVar[str] = "checkpoint.deleted.v1"

    id: str


class CheckpointRestored(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Values, task and notes are again what they were at a checkpoint; the turns after it are hidden."""

    topic: ClassVar[str] = "checkpoint.restored.v1"

    id: str
    position: Ordinal
    """The log position of the checkpoint's `checkpoint.created`."""


class TurnsRewound(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The turns after a position are hidden from the session's own recall. They stay in the log."""

    topic: ClassVar[str] = "turns.rewound.v1"

    to: Count
    """The log position of the last event that is not hidden."""


class FactAsserted(RequestedEvent, frozen=True, kw_only=True, omit_defaults=True):
    """A key was said to have a value from a moment on; `None` ends what it had. Recorded in the stream of a scope."""

    topic: ClassVar[str] = "fact.asserted.v1"

    key: str
    value: Any
    """Any JSON value. Always stored."""
    valid_from: Moment | None = None
    """Since when it is true, in microseconds since the Unix epoch; None: since it was said, else recorded."""
    said_at: Moment | None = None
    """When the newest of its evidence was said; None without evidence."""
    because: list[Annotated[Ordinal, TO_EVENT]] = []
    """Log positions of the turns that it rests on."""
    maker: str = ""
    """The program that found it; empty if none was named."""
    session: Annotated[str, TO_SESSION] | None = None
    """The session that it was asserted in; None for none."""
    proposal: Annotated[Ordinal, TO_EVENT] | None = None
    """The log position of the proposal that was approved by it; None for none."""
    proposed_by: str = ""
    """Who proposed it."""


class FactRetracted(RequestedEvent, frozen=True, kw_only=True, omit_defaults=True):
    """An assertion was wrong. From here on it is not believed; before, it was."""

    topic: ClassVar[str] = "fact.retracted.v1"

    fact: Ordinal
    """The log position of its `fact.asserted`."""
    reason: str = ""
    proposal: Annotated[Ordinal, TO_EVENT] | None = None
    """The log position of the proposal that was approved by it; None for none."""


class StandingEnded(RequestedEvent, frozen=True, kw_only=True, omit_defaults=True):
    """What a turn said of all answers to come holds no longer. Recorded in the stream of its session."""

    topic: ClassVar[str] = "standing.ended.v1"

    turn: Annotated[Ordinal, TO_EVENT]
    """The log position of the turn."""
    reason: str = ""
    proposal: Annotated[Ordinal, TO_EVENT] | None = None
    """The log position of the proposal that was approved by it; None for none."""


class SourceDistrusted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """From here on nothing of these sources is shown as an answer. Recorded in the stream of distrust, unencrypted.

    Turns and facts of any of them, recorded before it or after; with `scopes` only those at or below any of these.
    """

    topic: ClassVar[str] = "source.distrusted.v1"

    turns: list[Annotated[Ordinal, TO_EVENT]] = []
    """Log positions of turns."""
    sessions: list[Annotated[str, TO_SESSION]] = []
    """What was said or asserted in them."""
    appended_by: str = ""
    """An actor; empty for none."""
    maker: str = ""
    """The program that found facts; empty for none."""
    scopes: list[str] = []
    reason: str
    proposal: Annotated[Ordinal, TO_EVENT] | None = None
    """The log position of the proposal that was approved by it; None for none."""


class SourceTrusted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A distrust has ended. Recorded in the stream of distrust."""

    topic: ClassVar[str] = "source.trusted.v1"

    distrust: Ordinal
    """The log position of its `source.distrusted`."""
    reason: str = ""


class AssertFact(
    msgspec.Struct, frozen=True, omit_defaults=True, tag_field="do", tag="assert_fact", forbid_unknown_fields=True
):
    """Say what a key has. It rests on the turns that the proposal names (`because`)."""

    key: str
    value: Any
    """Any JSON value; None from when on nothing is known."""
    valid_from: str | None = None
    """Since when it is true, as ISO 8601 text; None: since `because` was said, else since it was approved."""
    corrects: Annotated[Ordinal, TO_EVENT] | None = None
    """The position of a fact of this key that was wrong."""
    reason: str = ""
    """Why that was wrong."""
    maker: str = ""
    """The program that found it."""


class RetractFact(
    msgspec.Struct, frozen=True, omit_defaults=True, tag_field="do", tag="retract_fact", forbid_unknown_fields=True
):
    """Take back a fact that was wrong."""

    assertions: list[Annotated[Ordinal, TO_EVENT]]
    """The positions of its assertions (`Fact.assertions`)."""
    reason: str = ""


class EndStanding(
    msgspec.Struct, frozen=True, omit_defaults=True, tag_field="do", tag="end_standing", forbid_unknown_fields=True
):
    """End the standing statements of a turn."""

    statement: Annotated[Ordinal, TO_EVENT]
    """The position of the turn."""
    reason: str


class DistrustSources(
    msgspec.Struct, frozen=True, omit_defaults=True, tag_field="do", tag="distrust", forbid_unknown_fields=True
):
    """Show nothing of these sources as an answer: of those at or below the scope of the proposal."""

    positions: list[Annotated[Ordinal, TO_EVENT]] = []
    """The positions of turns."""
    session: list[Annotated[str, TO_SESSION]] = []
    """Ids of sessions."""
    actor: str = ""
    maker: str = ""
    reason: str = ""


class Forget(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="do", tag="forget", forbid_unknown_fields=True):
    """Erase content permanently. What depends on it is found when it is approved."""

    session: list[Annotated[str, TO_SESSION]] = []
    """Ids of sessions."""
    positions: list[Annotated[Ordinal, TO_EVENT]] = []
    """The positions of events."""
    scope: list[str] = []
    """Scopes: all sessions at or below them."""
    questions: bool = True
    """Whether receipts of questions that may quote it go along."""
    reason: str = ""
    despite_minimum: str = ""
    """Why it is forgotten although a minimum age has not passed."""


Act = AssertFact | RetractFact | EndStanding | DistrustSources | Forget
"""An act that can be proposed, with the arguments of the call that does it."""


class ProposalMade(RequestedEvent, frozen=True, kw_only=True, omit_defaults=True):
    """An act was proposed. It is done when it is approved. Recorded in the stream of proposals of a scope."""

    topic: ClassVar[str] = "proposal.made.v1"

    act: Act
    why: str = ""
    because: list[Annotated[Ordinal, TO_EVENT]] = []
    """Log positions of the turns that it rests on."""
    until: Moment | None = None
    """When it expires, in microseconds since the Unix epoch; None for never."""


class ProposalDecided(RequestedEvent, frozen=True, kw_only=True, omit_defaults=True):
    """A proposal was approved, in the same append as what does its act, or declined."""

    topic: ClassVar[str] = "proposal.decided.v1"

    proposal: Annotated[Ordinal, TO_EVENT]
    """The log position of its `proposal.made`."""
    approved: bool
    done: Annotated[Ordinal, TO_EVENT] | None = None
    """The log position of the event that does its act; None for one that was declined."""
    proposed_by: str = ""
    """Who proposed it: what was proposed may be forgotten, as by its own act."""
    reason: str = ""


class SessionSwitched(Event, frozen=True, kw_only=True, omit_defaults=True):
    """An agent left one session for another. Recorded in the agent's stream."""

    topic: ClassVar[str] = "session.switched.v1"

    from_: str | None = msgspec.field(name="from")
    """None when the agent was in no session."""
    to: str
    reason: str


class ModelActivated(Event, frozen=True, kw_only=True, omit_defaults=True):
    """From here on this model's vectors answer. Recorded in the stream of models."""

    topic: ClassVar[str] = "model.activated.v1"

    fingerprint: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    """Identity of the model with its recipe: 64 hexadecimal digits."""
    model: str
    """The name by which it can be loaded, or the name that its object has."""
    dimension: Ordinal
    retain_every_n_turns: Ordinal = 1
    """More than 1 only where an earlier version wrote it: its vectors could cover several turns."""


class LanguageChosen(Event, frozen=True, kw_only=True):
    """From here on the text index removes the word endings of this language. Recorded in the stream of the language."""

    topic: ClassVar[str] = "language.chosen.v1"

    language: str
    """A code of ISO 639-1, such as `de`. Before the first choice it is `en`."""


class RedactionChosen(Event, frozen=True, kw_only=True):
    """From here on secrets are replaced before an event is appended, or not. Recorded in the stream of redaction."""

    topic: ClassVar[str] = "redaction.chosen.v1"

    on: bool


class RecallServed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A recall was answered, and the caller requested its receipt. Recorded in the stream of recalls.

    It has the query, which is content, and refers to turns by position.
    """

    topic: ClassVar[str] = "recall.served.v1"

    query: str
    k: Count
    mode: str
    head: Count
    """The log position that it was answered as of."""
    moment: Moment | None = None
    """When it was judged what holds: microseconds since the Unix epoch; None for the time of the last event by then."""
    as_of: bool = False
    """Whether the caller chose that position."""
    scope: str = ""
    scopes: list[str] = []
    """Instead of `scope`, if there are several."""
    session: str | None = None
    asked_in: Annotated[str, TO_SESSION] | None = None
    """The session that asked; None if it is unknown."""
    asked_for: Annotated[Ordinal, TO_EVENT] | None = None
    """The turn of that session that it asked for; None for the next one that it records."""
    lineage: bool = False
    beside: list[str] | None = None
    """With `lineage`: the scopes whose sessions were searched besides; the root if it is empty."""
    hidden: bool = False
    roles: list[Role] = []
    speakers: list[str] = []
    since: Moment | None = None
    until: Moment | None = None
    by: str = "said"
    """Whether `since` and `until` are times when turns were said or recorded."""
    metadata: dict[str, Any] = {}
    min_relevance: Share | None = None
    """Turns of less relevance were left out; None for a floor that suited the best hit."""
    asked: str = "keep"
    """`skip` if turns that ask what the query asks were passed over."""
    superseded: str = "mark"
    """`drop` if evidence of facts that did not hold was left out."""
    order: str | None = None
    """`time` or `relevance`, if the caller said so."""
    about: str | None = None
    """`said` or `answered`, if the caller said whose statements count more."""
    cover: bool | None = None
    """Whether a summary was requested, if the caller said so."""
    kind: str = "answer"
    """What the query was understood to ask for."""
    topic_searched: str = ""
    """What was searched for, if it was not the query."""
    alone: bool = False
    """Whether words were weighed by the turns that the filters left, not by all."""
    passed_over: Count = 0
    """Hits of the pages before this one."""
    candidates: Count
    """How many turns each leg offered to the ranking."""
    ranking: str
    """Name and version of the ranking."""
    weights: dict[str, Any] = {}
    """The settings of the ranking that differ from the default."""
    reranker: str = ""
    """The name of the reranker that scored the best turns."""
    vectors_to: Count | None = None
    """The position up to which vectors covered the log; None if they did not answer."""
    model: str | None = None
    """Fingerprint of the model that answered."""
    model_name: str = ""
    retain_every_n_turns: Count = 1
    """As in `ModelActivated`."""
    hits: list[Annotated[Ordinal, TO_EVENT]]
    """Log positions of the turns, best first."""
    scores: list[float]
    """The numbers that ordered the hits, one for each."""
    ranks: dict[str, list[int]]
    """By leg, one for each hit: its rank in that leg, 0 where the leg did not find it."""
    around: list[Annotated[Ordinal, TO_EVENT]] = []
    """Log positions of other turns that were shown with the hits: around them, in their exchange, or said later."""
    traceparent: str = ""
    """The W3C trace context of the HTTP request that asked; empty if it had none."""


class ContextServed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A context for a prompt was built, and the caller requested its receipt. Recorded in the stream of recalls.

    It has the query and the names of values, which are content, and refers to turns by position.
    """

    topic: ClassVar[str] = "context.served.v1"

    recall: RecallServed
    """The recall behind it, with everything that it found."""
    form: str
    """Name and version of the text and of how its parts are chosen."""
    budget: Count
    """In tokens."""
    tokens: Count
    """Tokens of the text."""
    counted_by: str
    """Name of the counter of tokens."""
    min_relevance: Share | None = None
    of: str | None = None
    """The session whose working memory it shows; None for none."""
    moment: Moment
    """When it was judged which values had expired: microseconds since the Unix epoch."""
    turns: list[Annotated[Ordinal, TO_EVENT]] = []
    """Log positions of the turns in the text, in its order."""
    starts: list[Count] = []
    """One for each turn: where what is shown of its text begins, in characters."""
    ends: list[Count] = []
    """Likewise where it ends."""
    sessions: list[Annotated[str, TO_SESSION]] = []
    """The sessions of these turns, sorted."""
    facts: list[Annotated[Ordinal, TO_EVENT]] = []
    """Log positions of the assertions of the facts in the text, in its order."""
    has_task: bool = False
    values: list[str] = []
    """The keys of the values in the text, in its order."""
    notes: Count = 0
    """How many notes are in the text."""
    digest: str
    """SHA-256 of the text in UTF-8, in hexadecimal digits."""


class RecallJudged(Event, frozen=True, kw_only=True, omit_defaults=True):
    """An answer was judged by a person or a program that knows the right one. Recorded in the stream of recalls.

    The last judgement of a receipt counts. It refers to turns by position and holds no content.
    """

    topic: ClassVar[str] = "recall.judged.v1"

    receipt: Ordinal
    """The log position of the answer's `recall.served` or `context.served`."""
    good: list[Ordinal] = []
    """Log positions of turns that answer the question, whether the recall found them or not."""
    bad: list[Ordinal] = []
    """Log positions of turns in the answer that do not answer the question."""
    nothing: bool = False
    """Whether no turn answers the question."""
    by: str = ""
    """Who judged; empty if unknown."""


class ForgetTarget(msgspec.Struct, frozen=True, kw_only=True):
    """Events of one stream whose content is to be forgotten."""

    stream: str
    versions: list[tuple[Ordinal, Ordinal]]
    """Ranges, both ends included, ascending."""
    series: Annotated[int, msgspec.Meta(ge=0, le=255)] = 0
    """The newest series of the stream's keys at that time. Earlier series are included."""
    counts: dict[str, Count]
    """How many events with content these are, by topic."""


class ForgetRequested(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Content is to be forgotten. Recorded in the stream of forgetting before anything is destroyed."""

    topic: ClassVar[str] = "forget.requested.v1"

    id: str
    targets: list[ForgetTarget]
    reason: str = ""
    scopes: list[str] = []
    """The scopes that the caller was bound to: nothing outside of them was reached. Empty for none."""
    questions: list[Ordinal] = []
    """Log positions of questions that may quote it and stay: the first of them."""
    questions_left: Count | None = None
    """How many these are; None if they were not counted."""
    facts_kept: Count = 0
    """How many facts stay although all turns go that they rest on."""
    despite_minimum: str = ""
    """Why it is forgotten although a minimum age has not passed; empty where it has."""
    proposal: Annotated[Ordinal, TO_EVENT] | None = None
    """The log position of the proposal that was approved by it; None for none."""


class ContentErased(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Content is erased: the keys of these versions are destroyed. Recorded in the stream of the content.

    A copy without versions in the stream of forgetting ends the request.
    """

    topic: ClassVar[str] = "content.forgotten.v1"

    request: str
    versions: list[tuple[Ordinal, Ordinal]] = []
    copies: list[str] | None = None
    """In the stream of forgetting: where copies of these keys were known to be. None if that was not noted."""


class ForgetCompleted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """No file of the store contains the forgotten content any more."""

    topic: ClassVar[str] = "forget.completed.v1"

    requests: list[str]


class Forgotten(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Stands for an event whose content was forgotten. Never stored."""

    topic: ClassVar[str] = "forgotten"

    was: str
    """The topic of the stored event."""


class TokenCreated(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A token was created. Recorded in the stream of tokens. Holds its digest, never the token."""

    topic: ClassVar[str] = "token.created.v1"

    id: str
    """The part of the token that is no secret."""
    acts_as: str
    """The actor of what is done with it."""
    verbs: list[str]
    """What it allows: `read`, `record`, `propose`, `approve`, `forget`, `admin`."""
    scopes: list[str] = []
    """It allows that within these scopes only; everywhere if there are none."""
    expires_at: Moment | None = None
    """When it ends, in microseconds since the Unix epoch; None for never."""
    digest: Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
    """SHA-256 of the token."""


class TokenRevoked(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A token allows nothing from here on, or from a later time on. Recorded in the stream of tokens."""

    topic: ClassVar[str] = "token.revoked.v1"

    id: str
    at: Moment | None = None
    """From when on, where another token replaces it, in microseconds since the Unix epoch; None for at once."""


class RetentionChosen(Event, frozen=True, kw_only=True, omit_defaults=True):
    """How long what is said in a scope is kept from here on. Recorded in the stream of retention, unencrypted."""

    topic: ClassVar[str] = "retention.chosen.v1"

    scope: str
    max_age: Age | None = None
    """The age at which turns are forgotten, such as `180d`; None for what the scope above says."""
    min_age: Age | None = None
    """The age, counted from the recording, before which nothing is forgotten; None for what the scopes above say."""
    by: By = "said"
    """What the maximum age is counted from."""
    keep_facts: bool = False
    """Whether facts that hold stay when the turns go that they rest on."""


class HoldPlaced(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Nothing in a scope is forgotten until this is lifted. Recorded in the stream of retention, unencrypted."""

    topic: ClassVar[str] = "hold.placed.v1"

    scope: str
    reason: str


class HoldLifted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A hold ends. Recorded in the stream of retention, unencrypted."""

    topic: ClassVar[str] = "hold.lifted.v1"

    hold: Annotated[Ordinal, TO_EVENT]
    """The log position of its `hold.placed`."""
    reason: str


class LossAccepted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """An operator continues with a log that has lost events. Recorded in the stream of losses, unencrypted."""

    topic: ClassVar[str] = "loss.accepted.v1"

    head: str
    """The head that the log had, as `POSITION:DIGEST`."""
    lost: list[str]
    """The heads that were seen before and are not in the log, as `POSITION:DIGEST`, the last one first."""
    reason: str


class ForeignEvent(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Stands for an event of another library (`mnemolog.eventsourcing`). Never stored."""

    topic: ClassVar[str] = "foreign"

    was: str
    """The topic that the library chose."""
    state: bytes
    """The bytes that the library stored."""


FOREIGN_STREAMS: Final = "eventsourcing."
"""The prefix of the names of streams that have such events."""

RECALLS_STREAM: Final = "recalls"
"""The stream of receipts."""

DISTRUST_STREAM: Final = "distrust"
"""The stream of what is distrusted, and of what is trusted again."""

RETENTION_STREAM: Final = "retention"
"""The stream of ages and holds."""

LOSS_STREAM: Final = "losses"
"""The stream of the losses that operators have accepted."""

EVENT_TYPES: Final[dict[str, type[Event]]] = {
    event_type.topic: event_type
    for event_type in (
        SessionStarted,
        TurnRecorded,
        SessionEnded,
        SessionResumed,
        ValueSet,
        ValueDeleted,
        ValuesCleared,
        TaskChanged,
        NoteAdded,
        NotesCleared,
        CheckpointCreated,
        CheckpointDeleted,
        CheckpointRestored,
        TurnsRewound,
        FactAsserted,
        FactRetracted,
        StandingEnded,
        SourceDistrusted,
        SourceTrusted,
        ProposalMade,
        ProposalDecided,
        SessionSwitched,
        ModelActivated,
        LanguageChosen,
        RedactionChosen,
        RecallServed,
        ContextServed,
        RecallJudged,
        ForgetRequested,
        ContentErased,
        ForgetCompleted,
        TokenCreated,
        TokenRevoked,
        RetentionChosen,
        HoldPlaced,
        HoldLifted,
        LossAccepted,
        *(ThreadCheckpointed, ThreadWritten, ThreadPruned, ThreadDeleted, ThreadCopied),
        *(ItemPut, ItemTouched, ItemDeleted),
    )
}
"""Every topic this version can read and write."""


class RecordedEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An event with its place in the log. What projections and replay read."""

    position: Position
    stream: str
    version: Version
    recorded_at: Micros
    key: str | None
    event: Event

    def to_cloud_event(self, source: str, data: Any = None) -> dict[str, Any]:
        """Return the fields of a CloudEvent 1.0 in its JSON format: `id` is the position, `subject` the stream.

        - `source`: a URI of the log: it and the `id` tell all events of all logs apart
        - `data`: what happened, if it is not this event itself, as plain values
        """
        return {
            "specversion": "1.0",
            "id": str(self.position),
            "source": source,
            "type": f"mnemolog.{self.event.topic}",
            "subject": self.stream,
            "time": to_datetime(self.recorded_at).isoformat(),
            "datacontenttype": "application/json",
            "data": msgspec.to_builtins(self) if data is None else data,
        }


# Encrypted content, which `mnemolog.infra.keys.keyring` decrypts:
# sealed = 0xC1 ‖ format 1 ‖ series ‖ nonce (12) ‖ ciphertext ‖ tag (16)
SEALED: Final = 0xC1
"""A first byte that msgpack never uses: it distinguishes encrypted states from plain ones."""
SEALING_FORMAT: Final = 1
NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16
HEAD_BYTES: Final = 3 + NONCE_BYTES

SEALED_TOPICS: Final = frozenset(
    kind.topic
    for kind in (
        *(TurnRecorded, ValueSet, ValueDeleted, TaskChanged, NoteAdded, CheckpointCreated),
        *(RecallServed, ContextServed),
        *(FactAsserted, FactRetracted, StandingEnded),
        *(ProposalMade, ProposalDecided),
        *(ThreadCheckpointed, ThreadWritten, ItemPut),
    )
)
"""Events that are encrypted as a whole. All others describe where content is, and stay readable."""
CONTENT_TOPICS: Final = SEALED_TOPICS | {SessionStarted.topic}
"""Events with content: also the start of a session, whose name is encrypted."""

REQUEST_DIGEST: Final = re.compile(rb"#[0-9a-f]{16}\Z")
"""The end of an idempotency key with an unkeyed digest of a request, as servers of an earlier form wrote it."""
IMPORTED_KEY: Final = re.compile(rb"[0-9a-f]{24}(-[0-9]+)?")
"""An idempotency key that `import` or `watch` of an earlier form made from a text with the secret of the store."""


def why_invalid(state: bytes | bytearray) -> str | None:
    """Return why a state that starts like an encrypted one is invalid; None if it may be valid."""
    if len(state) < HEAD_BYTES + TAG_BYTES:
        return "it is too short for encrypted content"
    if state[1] != SEALING_FORMAT:
        return f"it is sealed in format {state[1]}; this mnemolog knows {SEALING_FORMAT}"
    return None
