"""Where agents keep their transcripts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple


class Home(NamedTuple):
    """The folder of an agent."""

    variable: str
    """The variable of the environment that names it."""
    default: str
    """Its place in the user's own, where no variable does."""
    transcripts: str
    """Where transcripts lie below it."""


HOMES: Final = (
    Home("CLAUDE_CONFIG_DIR", ".claude", "projects"),
    Home("CODEX_HOME", ".codex", "sessions"),
)


def default_folders(environment: Mapping[str, str], user: Path) -> list[Path]:
    """Return the folders where the agents of this user keep their transcripts, as far as they are there."""
    folders = (Path(environment.get(home.variable) or user / home.default, home.transcripts) for home in HOMES)
    return [folder for folder in folders if folder.is_dir()]
