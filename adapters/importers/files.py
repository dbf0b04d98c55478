"""The files to import: those that are named, and those in folders and zip archives that hold conversations."""

from __future__ import annotations

import os
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from mnemolog.adapters.importers import chroma_folder
from mnemolog.adapters.importers.format import FieldMap
from mnemolog.adapters.importers.read import PROGRAMS, checked_format, format_of
from mnemolog.adapters.importers.source import Source
from mnemolog.domain.display import Bytes
from mnemolog.domain.errors import ImportRefused
from mnemolog.infra.runtime.files import ScratchFolder, local_paths, open_file
from mnemolog.infra.text_file import UNPACKED_TIMES_MAX, archive_of, is_zip, unpacked_max
from mnemolog.projections.ports import Progress, tell

_ENDINGS: Final = (".json", ".jsonl", ".ndjson", ".csv", ".tsv", ".txt", ".gz")
"""Other files of folders and archives are not looked at: pictures, sounds, pages."""
_EXPORTED: Final = "conversations"
"""How the files of ChatGPT and claude.ai with conversations begin; beside them lie those about the account."""


class Files(NamedTuple):
    """What there is to import."""

    found: list[Path]
    """The files, those of folders and archives by name."""
    skipped: list[str]
    """Files without conversations, of folders, archives and patterns."""
    scratch: list[ScratchFolder]
    """What was saved from folders of databases; it exists as long as this object."""


def files_in(
    given: str | Path | Iterable[str | Path],
    *,
    format: str | None,  # noqa: A002
    fields: FieldMap,
) -> Files:
    """Return the files to import, and those among them without conversations.

    A file in an archive has the path `export.zip/conversations.json`. If there is an export of a program among them,
    other JSON and tables in it are about the account, and skipped. So they are among several files of one folder and
    ending, as a shell's pattern names them, if one is `conversations….json`; files of no known format always are.
    Raises `InvalidInput` for an unknown format or fields of a transcript, and `ImportRefused` for a folder or an
    archive without conversations, and for an archive that unpacks to more than 50 times its size.
    """
    checked_format(format, fields)
    files = Files([], [], [])
    named: dict[tuple[Path, str], list[Path]] = defaultdict(list)
    for path in local_paths("paths", given):
        if (path / chroma_folder.DATABASE).is_file():
            files.scratch.append(ScratchFolder())
            files.found.extend(chroma_folder.save_collections(path, files.scratch[-1].path))
            continue
        inside = _inside(path)
        if inside is None:
            named[path.parent, path.suffix].append(path)
            continue
        chosen = _with_conversations(inside, format, fields)
        if not chosen:
            raise ImportRefused(path, 1, f"none of the {len(inside)} files in it holds conversations of a known format")
        files.found.extend(chosen)
        files.skipped.extend(str(file) for file in inside if file not in chosen)
    for given_files in named.values():
        one_by_one = len(given_files) == 1 or format is not None or not all(map(Path.is_file, given_files))
        chosen = (
            given_files if one_by_one else _with_conversations(given_files, format, fields, named=True) or given_files
        )
        files.found.extend(chosen)
        files.skipped.extend(str(file) for file in given_files if file not in chosen)
    return files


def _with_conversations(
    files: list[Path],
    format: str | None,  # noqa: A002
    fields: FieldMap,
    *,
    named: bool = False,
) -> list[Path]:
    """Return the files of a folder with conversations; among files that are `named`, an export has its usual name."""
    formats = {file: _format_in(file, fields) for file in files}
    programs = PROGRAMS.intersection(formats[file] for file in files if not named or file.name.startswith(_EXPORTED))
    wanted = {format} if format else programs or {*formats.values()} - {""}
    return [file for file in formats if formats[file] in wanted]


def counted_files(files: Sequence[Path], progress: Progress | None) -> Iterator[tuple[Path, Progress]]:
    """Yield each file with the callback for the bytes that are read of it: `progress` gets those of all files."""
    done, total = 0, Bytes(sum(map(_size_of, files)))
    for path in files:
        yield path, lambda read, _size, before=done: tell(progress, before + read, total)
        done += _size_of(path)


def _size_of(path: Path) -> int:
    """Return the bytes of a file as it is on disk, of the whole archive for a file in one. 0 if there is none."""
    path = archive_of(path) or path
    return path.stat().st_size if path.exists() else 0


def _inside(path: Path) -> list[Path] | None:
    """Return the files in a folder or an archive, None for a file."""
    if path.is_dir():
        inside = (Path(at, name) for at, _, names in os.walk(path) for name in names if _is_looked_at(name))
        return sorted(file for file in inside if not file.is_symlink())
    if not is_zip(path):
        return None
    try:
        with open_file(path, follow=True) as file, zipfile.ZipFile(file) as archive:
            files = [info for info in archive.infolist() if _is_looked_at(info.filename)]
    except (zipfile.BadZipFile, OSError, NotImplementedError) as error:
        raise ImportRefused(path, 1, f"the zip archive cannot be read: {error}") from error
    bytes_max = unpacked_max(path.stat().st_size)
    if sum(info.file_size for info in files) > bytes_max:
        why = f"it unpacks to more than {bytes_max:,} bytes, {UNPACKED_TIMES_MAX} times its size"
        raise ImportRefused(path, 1, f"{why}; if you know what is in it, unpack it and import the folder")
    if any(info.flag_bits & 1 for info in files):
        raise ImportRefused(path, 1, "the zip archive is encrypted; unpack it and import the folder")
    return sorted({path / info.filename for info in files})


def _is_looked_at(name: str) -> bool:
    """Whether a file may hold conversations. In an archive it must lie within: no `..`, no absolute path."""
    plain = PurePosixPath(name)
    is_within = str(plain) == name and not plain.is_absolute() and ".." not in plain.parts
    return is_within and name.lower().endswith(_ENDINGS)


def _format_in(path: Path, fields: FieldMap) -> str:
    """Return the format of a file, empty if it has none or is empty."""
    try:
        with Source(path) as source:
            is_empty = b"".join(source.head).strip() in (b"", b"[]", b"{}")
            return "" if is_empty else format_of(source, fields).name
    except ImportRefused:
        return ""
