"""What a node keeps in its local folder: its id, and up to where its projections are purged."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from mnemolog.domain import errors
from mnemolog.domain.decoding import UNDECODABLE
from mnemolog.domain.encoding import to_json
from mnemolog.domain.head import Head, head_line, parse_head
from mnemolog.infra.runtime.atomic_files import new_file
from mnemolog.infra.runtime.regular_files import open_file, read_file

NODE_FILE: Final = ".mnemolog.node"
"""Beside the address of the log, which people write and copy; outside of the projections, which can be deleted."""
PURGED_FILE: Final = "purged.json"
"""In the folder of projections, so that it is deleted, moved and copied with them."""
_ID_BYTES: Final = 8
_TRIES: Final = 3


class _Identity(msgspec.Struct, frozen=True):
    """The content of `NODE_FILE`."""

    node: str
    inode: int
    """The number of this file: that of a copy is another."""


# Made at import: `mnemolog.projections.sql.checked_json` has the reason.
_DECODER: Final = msgspec.json.Decoder(_Identity)


def identify(folder: Path) -> str:
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


def purged_to(projections: Path) -> Head | None:
    """Return up to where the projections in a folder are purged; None if that is not known."""
    try:
        return parse_head(PURGED_FILE, read_file(projections / PURGED_FILE).decode())
    except (OSError, UnicodeDecodeError, errors.InvalidInput):
        return None


def note_purged(projections: Path, upto: Head) -> None:
    """Note that all that was forgotten up to a head is gone. Raises `StoreNotWritable`, `StorageFull`."""
    with new_file(projections / PURGED_FILE, replace=True) as file:
        file.write(head_line(upto))
