"""The nodes of a log in PostgreSQL: the folders on several machines that have projections of it.

A node notes in the database how far it has read, and up to where its projections are purged of what was forgotten. It
does so when it is opened and closed, after a purge, and while it reads every 5 seconds at most. What another node has
forgotten is purged here when the store is opened, and else when a read or the projector finds that it was forgotten. So
is the temporary copy of projections of a store that is only read.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from mnemolog.domain import errors, structured_log
from mnemolog.domain.encoding import UNDECODABLE, to_json
from mnemolog.domain.events import ContentErased
from mnemolog.domain.forgetting import FORGETTING_STREAM
from mnemolog.domain.head import Head, head_line, parse_head
from mnemolog.domain.store_layout import StoreLayout
from mnemolog.domain.values import ORIGIN, Position, to_datetime
from mnemolog.forgetting import service as forgetting
from mnemolog.forgetting.history import NodeStatus, forgetting_status
from mnemolog.infra.log.event_log import EventLog
from mnemolog.infra.log.postgres.nodes import PostgresNodes
from mnemolog.infra.runtime import fork_guard
from mnemolog.infra.runtime.files import ScratchFolder, make_folder, new_file, open_file, read_file
from mnemolog.infra.sqlite import copy_database
from mnemolog.operations.backup_files import copy_file
from mnemolog.projections.projection_set import ProjectionSet
from mnemolog.projections.registry import PROJECTIONS
from mnemolog.projections.vectors.folders import MANIFEST_FILE, read_manifest

NODE_FILE: Final = ".mnemolog.node"
"""Beside the address of the log, which people write and copy; outside of the projections, which can be deleted."""
PURGED_FILE: Final = "purged.json"
"""In the folder of projections, so that it is deleted, moved and copied with them."""
_ID_BYTES: Final = 8
_TRIES: Final = 3
NOTE_S: Final = 5.0
"""How often an open node notes how far it has read, at most."""
BUSY_S: Final = 0.5
"""How long it waits while another one purges, before it looks again."""
LOOKS_MAX: Final = 5
"""The most times the segments are listed again, while projections are copied, because some were merged meanwhile."""
RETRY_S: Final = 5.0
"""How long a node waits after a purge that failed, before it tries again."""


class _Identity(msgspec.Struct, frozen=True):
    """The content of `NODE_FILE`."""

    node: str
    inode: int
    """The number of this file: that of a copy is another."""


# Made at import: `mnemolog.projections.sql.checked_json` has the reason.
_DECODER: Final = msgspec.json.Decoder(_Identity)


class Nodes:
    """This node and the others. Safe for many threads. For a log in a folder there are none."""

    def __init__(self, layout: StoreLayout, log: EventLog, projections: ProjectionSet) -> None:
        self._layout = layout
        self._log = log
        self._projections = projections
        self._label = f"{socket.gethostname()}:{layout.folder}"
        self._node = ""
        self._looking = fork_guard.lock()
        self._looked = ORIGIN
        self._epoch = 0
        self._retry_at = 0.0
        self._noted, self._note_at = ORIGIN, 0.0

    @property
    def _table(self) -> PostgresNodes | None:
        return self._log.engine.nodes

    def opened(self) -> None:
        """Register this node, and purge what was forgotten while it was away.

        A store with its projections in a temporary folder is no node, but purges those as well.
        """
        if self._layout.scratch is not None:
            self._projections.watch(look=self.look)
        if self._table is None or self._layout.scratch is not None:
            return
        self._node = _identify(self._layout.folder)
        self._projections.watch(look=self.look, reached=self.reached)
        try:
            self._note(opened=True)
        except errors.LogUnreachable:
            return  # What it has read is noted when the log answers again.
        except errors.StoreNotWritable as error:
            remove = errors.remedy("admin.remove_node", self._node)
            error.hint = errors.Hint(
                "if another user of PostgreSQL added this node, remove it as one who may write: ", remove
            )
            raise
        with suppress(errors.LogUnreachable):  # Lost since: the next read looks.
            self.look(self._log.head().position)

    def look(self, head: Position) -> None:
        """Purge what was forgotten, if anything was since the last look. Sends no query while the head is unchanged.

        Another thread or process may be purging: then it is left to that one. Where a purge fails it is tried again
        later. Meanwhile nothing that was forgotten is read: the views delete it when they read that it was erased.
        """
        if head == self._looked or time.monotonic() < self._retry_at or not self._looking.acquire(blocking=False):
            return
        try:
            if (epoch := self._log.epoch()) != self._epoch:
                self._purge()
                self._epoch = epoch
            self._looked = head
        except errors.LogBusy:  # This or another process of the node is purging.
            self._retry_at = time.monotonic() + BUSY_S
        except errors.NOT_NOW as error:
            structured_log.warning("nodes.not_purged", error=error)
            self._retry_at = time.monotonic() + RETRY_S
        finally:
            self._looking.release()

    def reached(self, position: Position) -> None:
        """Note how far this node has read, unless it noted something a short time ago."""
        if position != self._noted and time.monotonic() >= self._note_at:
            with suppress(errors.MnemologError):  # The answer is there already.
                self._note(position)

    def purged(self, upto: Head) -> None:
        """Note that all that was forgotten up to a head is gone from the projections of this node."""
        if self._node or self._layout.scratch is not None:
            _note_purged(self._layout.projections, msgspec.structs.replace(upto, log_id=self._log.log_id))
        if self._node:
            self._note()
            self._retry_at = 0.0

    def close(self) -> None:
        """Note where this node stops."""
        with suppress(errors.MnemologError):
            if self._node and (position := self._projections.views_position()) not in (None, self._noted):
                self._note(position)

    def all(self) -> list[NodeStatus]:
        """Return all nodes; none for a log in a folder."""
        self._log.require_usable()
        if self._table is None:
            return []
        head = self._log.head().position
        return [
            NodeStatus(
                node=row.node,
                label=row.label,
                here=row.node == self._node,
                opened_at=to_datetime(row.opened_at),
                seen_at=to_datetime(row.seen_at),
                position=Position(row.position),
                behind_events=max(0, head - row.position),
                purged=Position(row.purged),
            )
            for row in self._table.all()
        ]

    def remove(self, node: str) -> bool:
        """Remove a node. Return whether it was there."""
        self._log.require_usable()
        return self._table is not None and self._table.remove(node)

    def _purge(self) -> None:
        """Purge the projections if anything was erased since they were purged last."""
        erased = _last_erasure(self._log)
        if erased <= self._purged_to():
            return
        with forgetting.alone(self._layout, wait_s=0):
            if erased <= self._purged_to():  # Another process of this node has done it.
                return
            upto = self._log.head()
            if left := forgetting.purge(self._layout, self._log, self._projections):
                raise errors.ProjectionError(left)
            self.purged(upto)
        structured_log.info("nodes.purged", upto=upto.position)

    def _purged_to(self) -> Position:
        """Return up to where the projections are purged, the beginning if that was noted for another history."""
        found = _purged_to(self._layout.projections)
        if found is None or found.log_id != self._log.log_id:
            return ORIGIN
        return found.position if self._log.digest_at(found.position) == found.digest_bytes else ORIGIN

    def _note(self, position: Position | None = None, *, opened: bool = False) -> None:
        assert self._table is not None
        self._table.note(self._node, self._label, position=position, purged=self._purged_to(), opened=opened)
        if position is not None:
            self._noted, self._note_at = position, time.monotonic() + NOTE_S


def _last_erasure(log: EventLog) -> Position:
    """Return the position at which content was erased last, the beginning if none ever was."""
    found = ORIGIN
    for events in log.read_stream(FORGETTING_STREAM, upto=log.head().position):
        found = max([found, *(item.position for item in events if isinstance(item.event, ContentErased))])
    return found


def _identify(folder: Path) -> str:
    """Return the id of the node in `folder`, made at the first call. A copy of the folder gets an id of its own.

    Raises `StoreNotWritable`, `StorageFull`.
    """
    path = folder / NODE_FILE
    for _ in range(_TRIES):
        if (found := _identity(path)) is not None:
            return found
        # Another process that opens the folder for the first time may be quicker: then its id is found.
        with suppress(errors.InvalidInput), new_file(path, replace=path.exists()) as file:
            file.write(to_json(_Identity(secrets.token_hex(_ID_BYTES), os.fstat(file.fileno()).st_ino)))
    raise errors.StoreNotWritable(path, "it is not what was written")


def _identity(path: Path) -> str | None:
    try:
        with open_file(path) as file:
            found = _DECODER.decode(file.read())
            return found.node if found.inode == os.fstat(file.fileno()).st_ino else None
    except (FileNotFoundError, *UNDECODABLE):
        return None


def _purged_to(projections: Path) -> Head | None:
    """Return up to where the projections in a folder are purged; None if that is not known."""
    try:
        return parse_head(PURGED_FILE, read_file(projections / PURGED_FILE).decode())
    except (OSError, UnicodeDecodeError, errors.InvalidInput):
        return None


def _note_copied(log: EventLog, projections: Path) -> None:
    """Note of a folder, before projections are copied into it, that they are purged; unless that is not known."""
    if log.engine.nodes is not None:
        return
    upto = log.head()
    if not forgetting_status(log).pending:
        make_folder(projections)
        _note_purged(projections, msgspec.structs.replace(upto, log_id=log.log_id))


def _note_purged(projections: Path, upto: Head) -> None:
    """Note that all that was forgotten up to a head is gone. Raises `StoreNotWritable`, `StorageFull`."""
    with new_file(projections / PURGED_FILE, replace=True) as file:
        file.write(head_line(upto))


def scratch_of(folder: Path, log: EventLog) -> ScratchFolder:
    """Return a temporary folder with copies of the projections of a store. Closes the log if that fails."""
    try:
        scratch = ScratchFolder()
        _note_copied(log, StoreLayout(folder, scratch.path).projections)
        _copy_projections(StoreLayout(folder), scratch.path)
    except BaseException:
        log.close()
        raise
    return scratch


def _copy_projections(layout: StoreLayout, target: Path) -> None:
    """Copy databases, segments and the uses of tokens. What cannot be read is left out: it is rebuilt from the log."""
    for projection in PROJECTIONS:
        for _ in range(LOOKS_MAX):
            paths = projection.backup_paths(layout)
            for path in paths:
                copy = target / path.relative_to(layout.folder)
                if not copy.exists():
                    _copy(path, copy, within=layout.folder)
            if all(path.exists() for path in paths):
                break
    with suppress(OSError):
        copy_file(layout.token_uses, target / layout.token_uses.relative_to(layout.folder), within=layout.folder)


def _copy(source: Path, target: Path, *, within: Path) -> None:
    try:
        if source.suffix == ".db":
            make_folder(target.parent)
            copy_database(source, target)
            return
        files = read_manifest(source).files
        for name in (*sorted(files), MANIFEST_FILE):
            size = files[name].size_bytes if name in files else None
            copy_file(source / name, target / name, within=within, size_bytes=size)
    except (errors.StorageFull, errors.OutOfDescriptors, errors.StoreNotWritable):
        raise  # The copy cannot be written.
    except (errors.MnemologError, OSError) as error:
        if isinstance(error, OSError) and Path(error.filename or "").parent != source:
            raise  # The copy cannot be written.
        shutil.rmtree(target, ignore_errors=True)
        target.unlink(missing_ok=True)
