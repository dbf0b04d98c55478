"""What Hermes' home holds of mnemolog: the options, where its settings panels read them, and the plugin.

The plugin is two small files that register the provider.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from mnemolog.adapters.extras import require
from mnemolog.defaults import DEFAULT_MODEL
from mnemolog.domain.encoding import UNDECODABLE, to_json
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.values import RECALL_K_MAX
from mnemolog.infra.runtime.files import make_folder, mapped_to_store_errors, new_file, read_file

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
