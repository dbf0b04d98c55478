"""What an import would record: the first turns of each file and the fields that they come from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from itertools import chain, islice
from pathlib import Path
from typing import Final

import msgspec

from mnemolog.adapters.importers.fields import parse_field_map
from mnemolog.adapters.importers.files import counted_files, files_in
from mnemolog.adapters.importers.import_files import with_defaults
from mnemolog.adapters.importers.read import open_file, read_turns
from mnemolog.adapters.importers.turn import DAMAGED, DUPLICATE, ImportedTurn
from mnemolog.domain.errors import ImportRefused
from mnemolog.domain.position import Micros, to_datetime
from mnemolog.projections.ports import Progress

TURNS_SHOWN: Final = 3


class TurnPreview(msgspec.Struct, frozen=True, kw_only=True):
    """A turn as it would be recorded."""

    where: str
    """`line 12`, or `message 12` in a JSON document."""
    session: str
    session_title: str
    scope: str
    agent: str
    role: str
    speaker: str | None
    said_at: datetime | None
    """None if the file does not say: then it is the time of the import."""
    text: str


class FilePreview(msgspec.Struct, frozen=True, kw_only=True):
    """What an import of one file would record."""

    path: str
    format: str = ""
    """Empty for a file of a folder or an archive that holds no conversations."""
    kind: str
    """What files of this format are, for people."""
    turns: int = 0
    sessions: int = 0
    mapping: dict[str, str] = {}
    """By part of a turn the fields of the file that it comes from. Empty for a transcript."""
    first: tuple[TurnPreview, ...] = ()
    """The first three turns."""
    refused: tuple[str, ...] = ()
    """Lines that cannot be recorded, each as `path:line: why`."""
    left_out: dict[str, int] = {}
    """By reason, what is no turn, as in `ImportReport`."""


def preview_files(
    paths: str | Path | Sequence[str | Path],
    *,
    format: str | None = None,  # noqa: A002
    fields: Sequence[str] = (),
    scope: str | None = None,
    agent: str | None = None,
    progress: Progress | None = None,
) -> list[FilePreview]:
    """Return for each file what `import_files` would record of it. Reads the files to their end; writes nothing.

    The arguments are those of `import_files`. Lines that cannot be recorded are listed. Raises `InvalidInput` for
    arguments that do not fit, and `ImportRefused` for a file that cannot be read as a whole.
    """
    field_map, previews = parse_field_map(fields), []
    files = files_in(paths, format=format, fields=field_map)
    for path, tell in counted_files(files.found, progress):
        refused: list[ImportRefused] = []
        with open_file(path, format=format, fields=field_map, progress=tell, on_refused=refused.append) as opened:
            turns = with_defaults(opened.turns, scope=scope, agent=agent)
            first = list(islice(turns, TURNS_SHOWN))
            count, sessions, keys = 0, set(), set()
            for count, turn in enumerate(chain(first, turns), start=1):  # noqa: B007
                sessions.add(turn.session)
                keys.add(hash((turn.session, turn.key, turn.text)))
            lookup = None if opened.reader is None else opened.reader.lookup
            previews.append(
                FilePreview(
                    path=str(path),
                    format=opened.format.name,
                    kind=opened.format.kind,
                    turns=count,
                    sessions=len(sessions),
                    mapping={} if lookup is None else lookup.mapping(),
                    first=tuple(map(_turn, first)),
                    refused=tuple(map(str, refused)),
                    left_out=opened.left_out + Counter({DAMAGED: len(refused), DUPLICATE: count - len(keys)}),
                )
            )
    return previews + [FilePreview(path=path, kind="no conversations; skipped") for path in files.skipped]


def holds_turns(
    paths: Sequence[Path],
    *,
    format: str | None = None,  # noqa: A002
    fields: Sequence[str] = (),
    skip_bad: bool = False,
) -> bool:
    """Whether files have at least one turn. Raises `ImportRefused` for one that cannot be read up to there."""
    field_map, on_refused = parse_field_map(fields), (lambda _error: None) if skip_bad else None
    files = files_in(paths, format=format, fields=field_map)
    turns = (read_turns(file, format=format, fields=field_map, on_refused=on_refused) for file in files.found)
    return next(chain.from_iterable(turns), None) is not None


def _turn(turn: ImportedTurn) -> TurnPreview:
    shared = ("where", "session", "session_title", "scope", "role", "speaker", "text")
    said_at = None if turn.said_at is None else to_datetime(Micros(turn.said_at))
    return TurnPreview(**{name: getattr(turn, name) for name in shared}, agent=turn.agent or "", said_at=said_at)
