"""The options of the provider, stored in Hermes' home where its settings panels read them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from mnemolog.defaults import DEFAULT_MODEL
from mnemolog.domain.encoding import UNDECODABLE, to_json
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.limits import RECALL_K_MAX
from mnemolog.infra.runtime.files import make_folder, new_file, read_file

NAME: Final = "mnemolog"


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """The options."""

    folder: Annotated[str, Meta(description="Folder of the store (blank: mnemolog/store in Hermes' home)")] = ""
    model: Annotated[str, Meta(description="SentenceTransformer, or 'none' for text search only")] = DEFAULT_MODEL
    hits: Annotated[
        int, Meta(ge=1, le=RECALL_K_MAX // 2, description="Maximum number of turns recalled for a message")
    ] = 5
    recall: Annotated[
        Literal["user", "profile"],
        Meta(description="Recall what was said with this user, or with every user of the profile"),
    ] = "user"

    def store(self, home: Path) -> Path:
        """Return the folder of the store."""
        chosen = self.folder.replace("$HERMES_HOME", str(home))
        return Path(chosen).expanduser() if chosen else home / NAME / "store"


def file(home: Path) -> Path:
    """Return the path of the file with the options."""
    return home / NAME / "config.json"


def schema() -> list[dict[str, Any]]:
    """Return the options in the form that Hermes expects."""
    options = msgspec.json.schema_components([Config])[1]["Config"]["properties"]
    return [
        {"key": key, "description": option["description"], "default": str(option["default"])}
        | ({"choices": option["enum"]} if "enum" in option else {})
        for key, option in options.items()
    ]


def read(path: Path) -> Config:
    """Return the options, or the defaults if the file does not exist. Numbers may be strings.

    Raises `InvalidInput` for a file that is unreadable or has an invalid value.
    """
    try:
        return msgspec.convert(msgspec.json.decode(read_file(path, follow=True)), Config, strict=False)
    except FileNotFoundError:
        return Config()
    except (OSError, *UNDECODABLE) as error:
        raise InvalidInput(str(path), str(error)) from error


def change(path: Path, values: Mapping[str, Any]) -> Config:
    """Change these options and keep the others. Durable when this returns.

    Raises `InvalidInput` for an invalid value: nothing was changed.
    """
    before = msgspec.to_builtins(read(path))
    try:
        chosen = msgspec.convert(before | dict(values), Config, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidInput(str(path), str(error)) from error
    make_folder(path.parent)
    with new_file(path, replace=True) as file:
        file.write(msgspec.json.format(to_json(chosen), indent=2))
    return chosen
