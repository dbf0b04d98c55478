"""Install the provider as a plugin of Hermes: two small files in the plugin folder of Hermes' home."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from mnemolog.adapters.extras import require
from mnemolog.domain.errors import InvalidInput
from mnemolog.infra.runtime.files import make_folder, mapped_to_store_errors, new_file, read_file

NAME: Final = "mnemolog"
MARK: Final = "# Written by the command `hermes install` of mnemolog."

# The module comes last: Hermes loads a folder as soon as the module exists.
FILES: Final = {
    "plugin.yaml": f"""{MARK}
name: {NAME}
version: 1.0.0
description: "mnemolog: every turn in an append-only log, recalled by words and by meaning."
""",
    "__init__.py": f'''{MARK}
"""The memory provider of mnemolog."""

from mnemolog.adapters.hermes import MnemologProvider


def register(ctx):
    """Called by Hermes."""
    ctx.register_memory_provider(MnemologProvider())
''',
}


class Installed(msgspec.Struct, frozen=True, kw_only=True):
    """What an installation did, or would do in a dry run."""

    folder: str
    files: dict[str, str]
    """By file: `written`, `replaced` or `unchanged`."""
    dry_run: bool


def install(home: Path, *, force: bool = False, dry_run: bool = False) -> Installed:
    """Write the plugin's files into Hermes' home. Files that are up to date are left alone.

    A changed file of mnemolog is replaced only with `force`, a file of another origin never. Raises `InvalidInput`:
    nothing was written. Raises `StoreNotWritable`, `StorageFull`: call it again.
    """
    if not home.is_dir():
        raise InvalidInput("home", f"there is no Hermes home at {home}; run `hermes` once, or name it with --home")
    folder = home / "plugins" / NAME
    with mapped_to_store_errors(folder):
        files = {name: _planned(folder / name, text, force=force) for name, text in FILES.items()}
        if not dry_run:
            make_folder(folder)
            for name, action in files.items():
                if action != "unchanged":
                    with new_file(folder / name, replace=action == "replaced") as file:
                        file.write(FILES[name].encode())
    return Installed(folder=str(folder), files=files, dry_run=dry_run)


def hermes_home() -> Path:
    """Return the home that Hermes would use. Raises `ExtraMissing` if Hermes is not installed."""
    require("hermes", "hermes_constants")
    from hermes_constants import get_hermes_home

    return Path(get_hermes_home())


def _planned(path: Path, text: str, *, force: bool) -> str:
    if not path.exists():
        return "written"
    with mapped_to_store_errors(path):
        found = read_file(path, follow=True).decode(errors="replace")
    if found == text:
        return "unchanged"
    if not found.startswith(MARK):
        raise InvalidInput(
            "plugin", f"{path} was not written by mnemolog, so it is kept; move it away if it is not needed"
        )
    if not force:
        raise InvalidInput("plugin", f"{path} was changed; replace it with --force")
    return "replaced"
