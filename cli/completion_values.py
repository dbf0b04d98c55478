"""The values that completion offers: sessions, scopes, agents, models.

A shell asks for them at each press of Tab, so no store is opened and no model is loaded: files are read, none written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import typer

from mnemolog.defaults import DEFAULT_MODEL
from mnemolog.domain.store_layout import StoreLayout
from mnemolog.infra.runtime.regular_files import read_file, require_file

VALUES_MAX: Final = 500
"""The most sessions that one press of Tab looks at."""
_FIRST_EVENTS: Final = """
    SELECT stream, state FROM events
    WHERE topic <> 'turn.recorded.v1' AND stream >= ? AND stream < ? AND version = 1
    ORDER BY position DESC LIMIT ?
"""
"""The index on events that are no turns answers it."""
_IN_VIEWS: Final = """
    SELECT session, scope, agent FROM sessions WHERE session >= ? AND session < ? ORDER BY started_position DESC LIMIT ?
"""
_IS_TABLE: Final = "SELECT 1 FROM sqlite_master WHERE name = ? AND type = 'table'"
"""A view may never end: the store may come from an untrusted source."""


class _Started(NamedTuple):
    session: str
    scope: str
    agent: str


def sessions(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return ids of sessions with their scopes, the last started first."""
    return [(item.session, item.scope) for item in _started(ctx, incomplete)]


def scopes(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the scopes of the sessions, and the scopes above them."""
    found: set[str] = set()
    for item in _started(ctx):
        parts = item.scope.split("/")
        found |= {"/".join(parts[: n + 1]) for n in range(len(parts))}
    return sorted(scope for scope in found if scope and scope.startswith(incomplete))


def agents(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the agents of the sessions."""
    return sorted({item.agent for item in _started(ctx) if item.agent.startswith(incomplete)})


def models(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the default model, the models that have vectors in the store, and `none`."""
    names = dict.fromkeys([DEFAULT_MODEL, *_models_of(_layout(ctx)), "none"])
    return [name for name in names if name.startswith(incomplete)]


def roles(incomplete: str) -> list[str]:
    """Return the roles of turns."""
    return [role for role in ("user", "assistant", "system", "tool") if role.startswith(incomplete)]


def modes(incomplete: str) -> list[str]:
    """Return the modes of a recall."""
    return [mode for mode in ("hybrid", "vector", "text") if mode.startswith(incomplete)]


def _layout(ctx: typer.Context) -> StoreLayout:
    return StoreLayout(Path(ctx.params.get("store") or ""))


def _started(ctx: typer.Context, prefix: str = "") -> list[_Started]:
    """Return the last sessions that were started, without changing a byte in the folder.

    Where the log is in PostgreSQL, these are the sessions that the views have: nothing is asked over a network.
    """
    from mnemolog.domain.session import session_of, session_stream

    layout = _layout(ctx)
    if layout.log.exists():
        rows = _rows(layout.log, "events", _FIRST_EVENTS, session_stream(prefix))
        return [_started_of(session_of(stream) or stream, state) for stream, state in rows]
    return [_Started(*map(str, row)) for row in _rows(layout.views, "sessions", _IN_VIEWS, prefix)]


def _rows(database: Path, table: str, query: str, begin: str) -> list[Any]:
    """Return what a query gives for names that begin with `begin`; nothing if the file is no such database."""
    import sqlite3

    # In WAL mode, even a reader creates files beside the database, unless the database is declared immutable.
    path = database.absolute()
    unused = "" if path.with_name(f"{path.name}-wal").exists() else "&immutable=1"
    try:
        require_file(path)
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro{unused}", uri=True, timeout=0.2)) as connection:
            if connection.execute(_IS_TABLE, (table,)).fetchone() is None:
                return []
            return connection.execute(query, (begin, f"{begin}\U0010ffff", VALUES_MAX)).fetchall()
    except (OSError, sqlite3.Error):
        return []


def _started_of(session: str, state: bytes) -> _Started:
    try:
        fields = msgspec.msgpack.decode(state, type=dict[str, Any])
    except msgspec.DecodeError:
        fields = {}
    return _Started(session, str(fields.get("scope", "")), str(fields.get("agent", "")))


def _models_of(layout: StoreLayout) -> Iterator[str]:
    for manifest in sorted(layout.vectors.glob("*/*/manifest.json")):
        try:
            yield str(json.loads(read_file(manifest))["manifest"]["model"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            continue
