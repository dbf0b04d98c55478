"""The options of the provider, stored in Hermes' home where its settings panels read them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from mnemolog.defaults import DEFAULT_MODEL
from mnemolog.domain.limits import RECALL_K_MAX

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
