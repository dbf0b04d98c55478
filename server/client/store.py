"""A store on a server, with the surface of a local one."""

import shutil
import threading
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO, Final, NoReturn, Unpack, cast

import msgspec

from mnemolog.application.session_service import checked_turn, scope_warning
from mnemolog.audit.exports import LogExport
from mnemolog.audit.service import AuditService
from mnemolog.audit.subject import SubjectFile
from mnemolog.defaults import DEFAULT_AGENT
from mnemolog.domain import errors
from mnemolog.domain.message import EXAMPLE
from mnemolog.domain.options import takes_options
from mnemolog.domain.result import Results
from mnemolog.domain.scope import Scope, covers, parse_scope
from mnemolog.domain.session import SessionLike, checked_session_id, session_id_of
from mnemolog.domain.values import ORIGIN, TURNS_PER_CALL_MAX, Micros, When, check_count, to_datetime
from mnemolog.forgetting.history import ForgetReport
from mnemolog.infra.runtime import fork_guard
from mnemolog.infra.runtime.caller_warnings import warn
from mnemolog.infra.runtime.files import file_to_write, local_path
from mnemolog.models.service import ModelService
from mnemolog.operations.copies import BackupReport
from mnemolog.operations.service import AdminService
from mnemolog.projections.ports import Progress
from mnemolog.projections.quarantine import Quarantine
from mnemolog.projections.read_models import Turn
from mnemolog.projections.recall.prefetch import (
    HANDED_OUT,
    Outcome,
    PrefetchReason,
    PrefetchResult,
    Request,
    Stamp,
    Ticket,
)
from mnemolog.projections.recall.question import SearchOptions
from mnemolog.results import NewTurn
from mnemolog.server.client.connection import Connection
from mnemolog.server.client.operation import BY_NAME, Remote, broken_off, exported_into, remote
from mnemolog.server.http.serialization import Prefetch, Prefetched, SessionFound, SessionThen
from mnemolog.session import Session, SessionAt
from mnemolog.store import MemoryStore

_MANIFEST: Final = msgspec.json.Decoder(SubjectFile)
LOOK_S: Final = 0.05
"""How often an asyncio caller looks for a prefetched answer, in seconds."""
_WARN_OF_SCOPES: Final = frozenset({"sessions", "recall", "context", "standing", "find", "forget"})


class _Recording(Remote):
    """Returns handles on sessions, and checks turns before they are sent."""

    def _result(self, value: Any) -> Any:
        match value:
            case SessionFound():
                return RemoteSession(self._connection, value)
            case SessionThen():
                return RemoteSessionAt(self._connection, value)
        return value

    def _record(self, session: SessionLike, role: Any, text: Any, about: Mapping[str, Any]) -> Turn:
        session_id = session_id_of(session)
        if isinstance(role, str):
            if text is None and not about.get("tool_calls"):
                raise errors.InvalidInput("text", f'missing; write record("user", "Hello") or record({EXAMPLE})')
            new = NewTurn(session=session_id, role=role, text=text or "", **about)
        else:
            new = NewTurn.of(role, session=session_id, text=text, **about)
        return cast(Turn, self._call("record", **_fields(new)))

    def _record_many(
        self, messages: Sequence[NewTurn | Mapping[str, Any]], session: SessionLike | None
    ) -> Results[Turn]:
        check_count("messages", len(messages), limit=TURNS_PER_CALL_MAX, unit="messages")
        of = None if session is None else session_id_of(session)
        sent = []
        for place, message in enumerate(messages):
            try:
                sent.append(_fields(NewTurn.of(message, session=of)))
            except errors.InvalidInput as error:
                error.at_place(f"messages[{place}]")
                raise
        return cast(Results[Turn], self._call("record_many", messages=sent))


def _fields(new: NewTurn) -> dict[str, Any]:
    """Return a turn as it is sent, checked as it would be for a local store. Raises `InvalidInput`, `LimitExceeded`."""
    turn, key = checked_turn(new)
    fields = {
        "session": new.session,
        "role": turn.role,
        "text": turn.text,
        "key": key,
        "speaker": turn.speaker,
        "said_at": None if turn.said_at is None else to_datetime(Micros(turn.said_at)).isoformat(),
        "tool_calls": turn.tool_calls,
        "metadata": turn.metadata,
        "original": new.original,
    }
    return {name: value for name, value in fields.items() if value not in (None, [], {})}


@remote
class RemoteStore(_Recording, MemoryStore):
    """An agent's memory on a server: the surface of `MemoryStore`. See `connect`."""

    path: str  # type: ignore[assignment]
    """The URL of the server."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self.path = connection.url
        self.audit = RemoteAudit(connection)
        self.models = RemoteModels(connection)
        self.admin = RemoteAdmin(connection)

    def __getattr__(self, name: str) -> NoReturn:
        if name == "parts":
            raise errors.StoreError(f"the store is on a server, {self.path}: what needs its parts has to run there")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path!r})"

    def _call(self, name: str, /, **arguments: Any) -> Any:
        found = super()._call(name, **arguments)
        if name in _WARN_OF_SCOPES and (scope := arguments.get("scope")):
            shown = found.counts if isinstance(found, ForgetReport) else found
            for item in () if shown else [scope] if isinstance(scope, str) else scope:
                known = [summary.scope for summary in self.scopes()]
                if not any(covers(parse_scope(item), Scope(other)) for other in known):
                    warn(scope_warning(item, known))
        return found

    def close(self) -> None:
        """Close the connections to the server. Later calls raise `StoreClosed`; the store on the server stays open."""
        self._connection.close()

    def session(
        self,
        id: SessionLike | None = None,
        *,
        agent: str | None = None,
        scope: str | None = None,
        title: str | None = None,
        parent: SessionLike | None = None,
    ) -> Session:
        """Return a handle on the session with that id; start the session if there is none. See `MemoryStore`."""
        if id is None:
            agent = DEFAULT_AGENT if agent is None else agent
            return self.start_session(agent=agent, scope=scope or "", title=title, parent=parent)
        about = {"agent": agent, "scope": scope, "title": title, "parent": parent}
        return cast(Session, self._call("session", id=session_id_of(id, "id"), **about))

    def find_session(self, id: SessionLike) -> Session | None:
        """Return a handle on the session with that id; None if there is none. Raises `InvalidInput`."""
        try:
            return cast(Session, self._call("find_session", id=checked_session_id(session_id_of(id, "id"))))
        except errors.UnknownSession:
            return None

    def record(
        self,
        session: SessionLike,
        role: str | Mapping[str, Any],
        text: str | Sequence[Any] | None = None,
        **about: Any,
    ) -> Turn:
        """Record a turn in a session. See `Session.record`; also raises `UnknownSession`."""
        return self._record(session, role, text, about)

    def record_many(
        self, messages: Sequence[NewTurn | Mapping[str, Any]], session: SessionLike | None = None
    ) -> Results[Turn]:
        """Record messages in the order given, in one transaction: all of them or none. See `MemoryStore`."""
        return self._record_many(messages, session)

    def backup(
        self,
        target: str | Path | None = None,
        *,
        keys: str | Path | None = None,
        replace: bool = False,
        progress: Progress | None = None,
    ) -> BackupReport:
        """Have the server make a backup in its own folder for backups, under a new name. Give no `target` or `keys`.

        Raises as `MemoryStore.backup` does.
        """
        given = {"target": target, "keys": keys, "replace": replace or None}
        asked = {name: value for name, value in given.items() if value is not None}
        return cast(BackupReport, self._call("backup", progress=progress, **asked))


@remote
class RemoteSession(_Recording, Session):
    """A handle on a session on a server."""

    messages = Session.messages

    def __init__(self, connection: Connection, found: SessionFound) -> None:
        self._connection, self._given = connection, {"session": found.id}
        self.id = found.id
        self.title = found.title
        self.agent = found.agent
        self.scope = found.scope

    def __getattr__(self, name: str) -> NoReturn:
        if name == "_parts":
            raise errors.StoreError(f"session {self.id!r} is on a server: what needs its parts has to run there")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @takes_options
    def prefetch(
        self,
        query: str,
        *,
        k: int = 5,
        scope: str | Sequence[str] | None = None,
        lineage: bool = False,
        **options: Unpack[SearchOptions],
    ) -> Ticket:
        """Start a recall on the server and return at once. See `Session.prefetch`."""
        where: dict[str, Any] = {"query": query, "k": k, "scope": scope, "lineage": lineage}
        begun: Prefetch = self._call("session.prefetch", **where, **options)
        return RemoteTicket(begun.stamp, Request(session=self.id, **where, options=options))

    def prefetch_result(self, *, max_behind: int | None = None, wait_s: float = 0.0) -> PrefetchResult:
        """Return the answer to this session's newest prefetch, once, or the reason why there is none."""
        found: Prefetched = self._call("session.prefetch_result", max_behind=max_behind, wait_s=wait_s)
        ticket = None
        if (begun := found.prefetch) is not None:
            ticket = RemoteTicket(begun.stamp, Request(session=self.id, query=begun.stamp.query))
            if found.reason is not PrefetchReason.NOT_READY:
                ticket.settle(HANDED_OUT if found.reason is None else Outcome(reason=found.reason, error=found.error))
        return PrefetchResult(recall=found.recall, reason=found.reason, error=found.error, ticket=ticket)

    def record(self, role: str | Mapping[str, Any], text: str | Sequence[Any] | None = None, **about: Any) -> Turn:
        """Record a turn. Durable when this returns. See `Session.record`."""
        return self._record(self.id, role, text, about)

    def record_many(self, messages: Sequence[NewTurn | Mapping[str, Any]]) -> Results[Turn]:
        """Record messages in the order given, in one transaction. See `MemoryStore.record_many`."""
        return self._record_many(messages, self.id)


class RemoteTicket(Ticket):
    """A recall in the background of a server. What became of it is known from `Session.prefetch_result` alone."""

    def __init__(self, stamp: Stamp, request: Request) -> None:
        super().__init__(stamp, request, fork_guard.lock())

    def wait(self, timeout_s: float) -> bool:
        """Raise `StoreError`: the server waits, in `prefetch_result(wait_s=…)`."""
        raise _only_result()

    def cancel(self) -> None:
        """Raise `StoreError`: a newer prefetch of the session replaces this one."""
        raise _only_result()

    def when_done(self, call: Callable[[], None]) -> None:
        """Call `call` soon, for the caller to look again."""
        timer = threading.Timer(LOOK_S, call)
        timer.daemon = True
        timer.start()


def _only_result() -> errors.StoreError:
    return errors.StoreError("this prefetch runs on a server: call prefetch_result(wait_s=…) for its answer")


@remote
class RemoteSessionAt(Remote, SessionAt):
    """A session on a server as it was at a position of the log, read-only."""

    def __init__(self, connection: Connection, found: SessionThen) -> None:
        self._connection, self._given = connection, {"session": found.id, "at": found.position}
        self.id = found.id
        self.position = found.position
        self._ended = found.ended

    @property
    def ended(self) -> bool:
        """Whether the session had ended."""
        return self._ended


@remote
class RemoteAudit(Remote, AuditService):
    """The history of a store on a server: `store.audit`."""

    def export(
        self,
        file: str | Path | BinaryIO,
        *,
        after: When = ORIGIN,
        upto: When | None = None,
        replace: bool = False,
        progress: Progress | None = None,
    ) -> LogExport:
        """Write the log of the server to a file of this machine. See `AuditService`; `progress` is not called."""
        call = BY_NAME["audit.export"].call({"after": after, "upto": upto})
        with _to_write(file, replace=replace) as opened:
            receive = partial(exported_into, file=opened, url=self._connection.url)
            report: LogExport = self._connection.send(call, receive)
        return report

    def subject(
        self,
        file: str | Path | BinaryIO,
        *,
        scope: str | Sequence[str],
        as_of: When | None = None,
        replace: bool = False,
        progress: Progress | None = None,
    ) -> SubjectFile:
        """Write a person's file to this machine. See `AuditService`; `progress` is not called."""
        call = BY_NAME["audit.subject"].call({"scope": scope, "as_of": as_of})
        with _to_write(file, replace=replace) as opened, TemporaryFile() as received:
            self._connection.send(call, lambda answer: received.writelines(answer.iter_bytes()))
            try:
                manifest = zipfile.ZipFile(received).read("manifest.json")
            except zipfile.BadZipFile as error:
                raise broken_off(self._connection.url) from error
            received.seek(0)
            shutil.copyfileobj(received, opened)
        return _MANIFEST.decode(manifest)


def _to_write(file: str | Path | BinaryIO, *, replace: bool) -> AbstractContextManager[BinaryIO]:
    return file_to_write(local_path("file", file) if isinstance(file, str | Path) else file, replace=replace)


@remote
class RemoteModels(Remote, ModelService):
    """The embedding models of a store on a server: `store.models`."""


@remote
class RemoteAdmin(Remote, AdminService):
    """Maintains a store on a server: `store.admin`."""

    def quarantine(self) -> Quarantine:
        """Return the quarantine, to list its items and to purge them."""
        return RemoteQuarantine(self._connection)


@remote
class RemoteQuarantine(Remote, Quarantine):
    """The quarantine of a store on a server."""
