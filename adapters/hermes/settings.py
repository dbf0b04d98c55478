"""Settings in a JSON file, for what is run by somebody else: as they were chosen, checked, or the defaults."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from mnemolog.domain.errors import InvalidInput
from mnemolog.infra.runtime.atomic_files import new_file

Settings = TypeVar("Settings", bound=msgspec.Struct)


def read_settings(path: Path, kind: type[Settings]) -> Settings:
    """Return what was chosen, or the defaults of `kind` where nothing was. Numbers may be text.

    Raises `InvalidInput` for a file that cannot be read, or holds what cannot be chosen.
    """
    try:
        return msgspec.convert(msgspec.json.decode(path.read_bytes()), kind, strict=False)
    except FileNotFoundError:
        return kind()
    except (OSError, msgspec.MsgspecError) as error:
        raise InvalidInput(str(path), str(error)) from error


def change_settings(path: Path, kind: type[Settings], values: Mapping[str, Any]) -> Settings:
    """Choose these values, and leave the others as they are. Durable when this returns.

    Raises `InvalidInput` for what cannot be chosen: what was chosen before stands.
    """
    before = msgspec.to_builtins(read_settings(path, kind))
    try:
        chosen = msgspec.convert(before | dict(values), kind, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidInput(str(path), str(error)) from error
    path.parent.mkdir(parents=True, exist_ok=True)
    with new_file(path, overwrite=True) as file:
        file.write(msgspec.json.format(msgspec.json.encode(chosen), indent=2))
    return chosen
