"""Settings in a JSON file, checked when they are read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from mnemolog.domain.decoding import UNDECODABLE
from mnemolog.domain.encoding import to_json
from mnemolog.domain.errors import InvalidInput
from mnemolog.infra.runtime.atomic_files import make_folder, new_file
from mnemolog.infra.runtime.regular_files import read_file

Settings = TypeVar("Settings", bound=msgspec.Struct)


def read_settings(path: Path, kind: type[Settings]) -> Settings:
    """Return the settings, or the defaults of `kind` if the file does not exist. Numbers may be strings.

    Raises `InvalidInput` for a file that is unreadable or has an invalid value.
    """
    try:
        return msgspec.convert(msgspec.json.decode(read_file(path, follow=True)), kind, strict=False)
    except FileNotFoundError:
        return kind()
    except (OSError, *UNDECODABLE) as error:
        raise InvalidInput(str(path), str(error)) from error


def change_settings(path: Path, kind: type[Settings], values: Mapping[str, Any]) -> Settings:
    """Change these values and keep the others. Durable when this returns.

    Raises `InvalidInput` for an invalid value: nothing was changed.
    """
    before = msgspec.to_builtins(read_settings(path, kind))
    try:
        chosen = msgspec.convert(before | dict(values), kind, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidInput(str(path), str(error)) from error
    make_folder(path.parent)
    with new_file(path, replace=True) as file:
        file.write(msgspec.json.format(to_json(chosen), indent=2))
    return chosen
