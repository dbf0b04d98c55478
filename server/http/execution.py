"""How the operations of the table are called on a store: in which pool, page by page, unchanged or not."""

from __future__ import annotations

import hmac
import inspect
import secrets
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, get_origin, get_type_hints

import msgspec

from mnemolog.adapters.support.store_access import boundary_of, events_of, known_async_session, known_session
from mnemolog.aio.store import (
    AsyncAdminService,
    AsyncAuditService,
    AsyncMemoryStore,
    AsyncModelService,
    AsyncQuarantine,
    AsyncSession,
)
from mnemolog.aio.wrappers import Pool, pool_of
from mnemolog.audit.service import AuditService
from mnemolog.domain import errors
from mnemolog.domain.encoding import to_json, to_printable_json
from mnemolog.domain.head import Head, position_at
from mnemolog.domain.limits import checked_number, checked_whole
from mnemolog.domain.position import ORIGIN
from mnemolog.domain.result import Results
from mnemolog.domain.session import checked_session_id
from mnemolog.domain.working_memory import MISSING
from mnemolog.models.service import ModelService
from mnemolog.operations.service import AdminService
from mnemolog.projections.quarantine import Quarantine
from mnemolog.server.http.authentication import Caller
from mnemolog.server.http.problems import as_plain
from mnemolog.server.http.routes import HttpOperation
from mnemolog.server.http.serialization import PAGE, PAGE_MAX, WAIT_MAX_S, WAITS, is_paged
from mnemolog.session import Session
from mnemolog.store import MemoryStore

TAG_KEY: Final = secrets.token_bytes(32)
"""The key of the hash in entity tags. A restarted server has another one: its answers may look different."""
PAGE_BYTES: Final = 8 * 2**20
"""A page ends with the item that reaches this size as JSON."""
POSITIONS: Final = 10_000
"""How many events of the log a page is looked for in, where a caller does not see all of them."""
PART: Final = 200
"""How many items of a page are read at once."""
Call = Callable[[MemoryStore, dict[str, Any]], Any]

_OWNERS: Final[dict[type, tuple[type, Callable[[MemoryStore], Any]]]] = {
    MemoryStore: (AsyncMemoryStore, lambda store: store),
    Session: (AsyncSession, lambda _: None),
    AuditService: (AsyncAuditService, lambda store: store.audit),
    ModelService: (AsyncModelService, lambda store: store.models),
    AdminService: (AsyncAdminService, lambda store: store.admin),
    Quarantine: (AsyncQuarantine, lambda store: store.admin.quarantine()),
}
"""The twin for asyncio of each class whose methods are offered, and which one of a store it is."""


class Folders(msgspec.Struct, frozen=True, kw_only=True):
    """Where the server puts files that callers ask for. No caller names a path."""

    backups: Path | None = None
    """Each backup is a new folder in here. None: the server makes no backups."""
    backup_keys: Path | None = None
    """The folder that the keys of the content are copied to, apart from the backups."""
    without_keys: bool = False
    """Whether backups may be made without a copy of the keys, which are kept in another way."""


class Condition(msgspec.Struct, frozen=True):
    """What a request says about the answers that its caller has kept."""

    url: tuple[bytes, bytes]
    """Path and query."""
    caller: Caller
    known: str
    """The header `If-None-Match`."""

    def etag(self, head: Head) -> str:
        """Return the entity tag of the answer, which depends on the request and on the log up to a head."""
        caller = self.caller
        of = (head.position, head.digest, self.url, caller.token, caller.actor, sorted(caller.verbs), caller.scopes)
        return f'"{hmac.digest(TAG_KEY, to_json(of), "sha256").hex()[:32]}"'


class CallResult(msgspec.Struct, frozen=True):
    """What a call returned."""

    result: Any
    next: int | None = None
    """Where the next page begins; None if there is none."""
    etag: str | None = None
    """The entity tag of the result; None where it does not depend on the log alone."""
    is_unchanged: bool = False
    """Whether the caller has this result already: then it was not made again."""
    is_new: bool = False
    """Whether the call has made what it returns: a session."""


def pool_for(operation: HttpOperation) -> Pool:
    """Return the pool that the operation's twin for asyncio runs in."""
    return pool_of(getattr(_OWNERS[operation.owner][0], operation.method.__name__))


def call_for(
    operation: HttpOperation, folders: Folders
) -> Callable[[MemoryStore, dict[str, Any], Condition], CallResult]:
    """Return the function that makes a call."""
    call = _page_of(operation) if is_paged(operation) else partial(_whole, _call_of(operation, folders))
    if operation.makes_session:
        call = partial(_session, operation.method.__name__)
    return partial(_of_log, call) if operation.of_log_alone else lambda store, arguments, _: call(store, arguments)


def existing_session(store: MemoryStore, session: str) -> Session:
    """Return a handle on a session. Raises `UnknownSession`, with the ids that resemble it, and `InvalidInput`."""
    return known_session(store, checked_session_id(session))


def _whole(call: Call, store: MemoryStore, arguments: dict[str, Any]) -> CallResult:
    return CallResult(call(store, arguments))


def _session(name: str, store: MemoryStore, arguments: dict[str, Any]) -> CallResult:
    known = None if name == "start_session" else store.find_session(arguments["id"])
    return CallResult(getattr(store, name)(**arguments), is_new=known is None)


def _of_log(
    call: Callable[[MemoryStore, dict[str, Any]], CallResult],
    store: MemoryStore,
    arguments: dict[str, Any],
    condition: Condition,
) -> CallResult:
    try:
        # Read first: what is appended meanwhile may be in the answer, and then the tag is that of an older one.
        etag = condition.etag(store.head())
    except errors.LogUnreachable:  # The answer comes from projections alone.
        return call(store, arguments)
    # Only a caller who was given the answer knows its tag. Anybody can send `*`: the call decides what is answered.
    found = CallResult(None) if (is_known := etag in condition.known) else call(store, arguments)
    is_unchanged = is_known or condition.known.strip() == "*"
    return msgspec.structs.replace(found, etag=etag, is_unchanged=is_unchanged)


def _call_of(operation: HttpOperation, folders: Folders) -> Call:
    name = operation.method.__name__
    if operation.of_session:
        return partial(_on_session, operation)
    if operation.method is MemoryStore.find_session:
        return lambda store, arguments: existing_session(store, arguments["id"])
    if operation.method is MemoryStore.backup:
        return partial(_back_up, folders)
    if operation.owner is ModelService and "model" in inspect.signature(operation.method).parameters:
        return partial(_on_model, name)
    owner = _OWNERS[operation.owner][1]
    return lambda store, arguments: getattr(owner(store), name)(**arguments)


def _on_session(operation: HttpOperation, store: MemoryStore, arguments: dict[str, Any]) -> Any:
    name, session = operation.method.__name__, existing_session(store, arguments.pop("session"))
    if name == "get":
        arguments["default"] = MISSING
    at = arguments.pop("at", None) if operation.as_of else None
    if at is None:
        return getattr(session, name)(**arguments)
    if arguments.pop("hidden", False):
        raise errors.InvalidInput("hidden", "cannot be given together with `at`; leave one out")
    return getattr(session.at(at), name)(**arguments)


def _page_of(operation: HttpOperation) -> Callable[[MemoryStore, dict[str, Any]], CallResult]:
    call = _call_of(operation, Folders())
    is_read_on = get_origin(get_type_hints(operation.method)["return"]) is Iterator

    def page(store: MemoryStore, arguments: dict[str, Any]) -> CallResult:
        limit, last = arguments.pop("limit", PAGE), arguments.pop("last", None)
        checked_whole("limit", limit, most=PAGE_MAX)
        if last is not None:
            checked_whole("last", last, most=PAGE_MAX)
            found = page(store, arguments | {"limit": last, "newest_first": True})
            if not arguments.get("newest_first"):
                found.result.reverse()
            return found
        if is_read_on:
            end = _end_of_part(store, arguments) if boundary_of(store).scopes else None
            return _page(call(store, arguments), limit, end=end)
        if operation.method is MemoryStore.sessions:
            after = arguments.pop("after", 0)
            found = call(store, arguments)
            return _page((item for item in found if item.started_position > after), limit, of=found)
        first = call(store, arguments | {"limit": min(limit, PART)})
        return _page(_read_on(partial(call, store), arguments, first), limit, of=first)

    return page


def _end_of_part(store: MemoryStore, arguments: dict[str, Any]) -> int | None:
    """Bound a call to the first `POSITIONS` events of its range. Return where that ends, None if it has no more."""
    log = events_of(store)
    upto = log.head().position if (asked := arguments.get("upto")) is None else position_at("upto", asked, log)
    end = position_at("after", arguments.get("after", ORIGIN), log) + POSITIONS
    if end >= upto:
        return None
    arguments["upto"] = end
    return end


def _page(items: Iterable[Any], limit: int, *, of: Any = None, end: int | None = None) -> CallResult:
    """Return the first items, at most `limit` and about `PAGE_BYTES`, as a list like `of`.

    After `end` more may follow: the next page begins there if this one has all items.
    """
    found, size = Results[Any](), 0
    for item in items:
        if len(found) == limit or size >= PAGE_BYTES:
            end = _place(found[-1])
            break
        found.append(item)
        size += len(to_printable_json(item, enc_hook=as_plain))
    found.stale = getattr(of, "stale", None)
    return CallResult(found, next=end)


def _read_on(call: Callable[[dict[str, Any]], Any], arguments: dict[str, Any], part: Results[Any]) -> Iterator[Any]:
    """Yield the items of a list part by part, so that little more is read than a page has room for."""
    cursor = "before" if arguments.get("newest_first") else "after"
    yield from part
    while part.next is not None:
        part = call(arguments | {"limit": PART, cursor: part.next})
        yield from part


def _place(item: Any) -> int:
    return int(getattr(item, "started_position", None) or item.position)


def _back_up(folders: Folders, store: MemoryStore, arguments: dict[str, Any]) -> Any:
    boundary_of(store).require_none("backup")  # First: the refusal below names the folder of the server.
    if folders.backups is None:
        raise errors.BackupRefused(store.path, "this server was started without a folder for backups")
    name = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}"
    return store.backup(folders.backups / name, keys=folders.backup_keys, **arguments)


def _on_model(name: str, store: MemoryStore, arguments: dict[str, Any]) -> Any:
    model: str = arguments["model"]
    # The library also takes folders: a caller is not to open those of the server.
    if not any(model == item.name or item.fingerprint.startswith(model) for item in store.models.list()):
        raise errors.ModelRefused(model, "no model with that name or fingerprint prefix")
    return getattr(store.models, name)(**arguments)


async def prefetch_result(store: AsyncMemoryStore, arguments: dict[str, Any]) -> CallResult:
    """Return what `Session.prefetch_result` does, without a thread that waits."""
    session = await known_async_session(store, checked_session_id(arguments.pop("session")))
    return CallResult(await session.prefetch_result(**arguments))


def require_short_waits(arguments: dict[str, Any]) -> None:
    """Raise `InvalidInput` if a caller wants to wait for longer than `WAIT_MAX_S`: a thread of the server waits too."""
    for name in WAITS & arguments.keys():
        checked_number(name, arguments[name], most=WAIT_MAX_S)
