"""What may be chosen, in the file of Hermes' home where its own panels look for it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.limits import RECALL_K_MAX
from mnemolog.infra.durable_files import new_file
from mnemolog.store import DEFAULT_MODEL

NAME: Final = "mnemolog"

SCHEMA: Final[list[dict[str, Any]]] = [
    {"key": "folder", "description": "Folder of the store (blank: mnemolog/store in Hermes' home)", "default": ""},
    {"key": "model", "description": "SentenceTransformer, or 'none' for words alone", "default": DEFAULT_MODEL},
    {"key": "hits", "description": "How many turns a message is given at most", "default": "5"},
    {
        "key": "recall",
        "description": "Recall what was said with this user, or with every user of the profile",
        "choices": ["user", "profile"],
        "default": "user",
    },
]


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """What was chosen. Fields as in `SCHEMA`."""

    folder: str = ""
    model: str = DEFAULT_MODEL
    hits: Annotated[int, msgspec.Meta(ge=1, le=RECALL_K_MAX // 2)] = 5
    recall: Literal["user", "profile"] = "user"

    @property
    def encoder(self) -> str | None:
        """The model to open the store with."""
        return None if self.model.lower() == "none" else self.model

    def store(self, home: Path) -> Path:
        """Return the folder of the store."""
        return Path(self.folder.replace("$HERMES_HOME", str(home))).expanduser() if self.folder else _own(home, "store")


def read(home: Path) -> Config:
    """Return what was chosen, or the defaults. Raises `InvalidInput` for what cannot be read."""
    path = _own(home, "config.json")
    try:
        # Hermes' panels save numbers as text.
        return msgspec.convert(msgspec.json.decode(path.read_bytes()), Config, strict=False)
    except FileNotFoundError:
        return Config()
    except (OSError, msgspec.MsgspecError) as error:
        raise InvalidInput(str(path), str(error)) from error


def save(values: Mapping[str, Any], home: Path) -> None:
    """Choose. Raises `InvalidInput` for what cannot be chosen: what was chosen before stands."""
    path = _own(home, "config.json")
    try:
        chosen = msgspec.convert(msgspec.to_builtins(read(home)) | dict(values), Config, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidInput(str(path), str(error)) from error
    path.parent.mkdir(parents=True, exist_ok=True)
    with new_file(path, overwrite=True) as file:
        file.write(msgspec.json.format(msgspec.json.encode(chosen), indent=2))


def _own(home: Path, name: str) -> Path:
    return home / NAME / name
