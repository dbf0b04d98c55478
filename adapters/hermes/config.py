"""What may be chosen, in the file of Hermes' home where its own panels look for it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from mnemolog.defaults import DEFAULT_MODEL
from mnemolog.domain.limits import RECALL_K_MAX

NAME: Final = "mnemolog"


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """What was chosen."""

    folder: Annotated[str, Meta(description="Folder of the store (blank: mnemolog/store in Hermes' home)")] = ""
    model: Annotated[str, Meta(description="SentenceTransformer, or 'none' for words alone")] = DEFAULT_MODEL
    hits: Annotated[int, Meta(ge=1, le=RECALL_K_MAX // 2, description="How many turns a message is given at most")] = 5
    recall: Annotated[
        Literal["user", "profile"],
        Meta(description="Recall what was said with this user, or with every user of the profile"),
    ] = "user"

    def store(self, home: Path) -> Path:
        """Return the folder of the store."""
        chosen = self.folder.replace("$HERMES_HOME", str(home))
        return Path(chosen).expanduser() if chosen else home / NAME / "store"


def file(home: Path) -> Path:
    """Return where it is kept."""
    return home / NAME / "config.json"


def schema() -> list[dict[str, Any]]:
    """Return the options as Hermes asks for them."""
    options = msgspec.json.schema_components([Config])[1]["Config"]["properties"]
    return [
        {"key": key, "description": option["description"], "default": str(option["default"])}
        | ({"choices": option["enum"]} if "enum" in option else {})
        for key, option in options.items()
    ]
