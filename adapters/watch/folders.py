"""The folders in which agents keep their transcripts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple


class Home(NamedTuple):
    """The folder of an agent."""

    variable: str
    """The environment variable that names it."""
    default: str
    """Its name in the user's home, if the variable is not set."""
    transcripts: str
    """The folder of transcripts in it."""


HOMES: Final = (
    Home("CLAUDE_CONFIG_DIR", ".claude", "projects"),
    Home("CODEX_HOME", ".codex", "sessions"),
)


def default_folders(environment: Mapping[str, str], user: Path) -> list[Path]:
    """Return the folders with transcripts of this user's agents, as far as they exist."""
    folders = (Path(environment.get(home.variable) or user / home.default, home.transcripts) for home in HOMES)
    return [folder for folder in folders if folder.is_dir()]
