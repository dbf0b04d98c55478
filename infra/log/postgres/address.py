"""Where the log of a store is, if it is in PostgreSQL: `.mnemolog.toml` names the database and the log."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from mnemolog.domain import errors
from mnemolog.domain.encoding import to_json
from mnemolog.domain.limits import checked_label
from mnemolog.infra.runtime.atomic_files import make_folder, new_file
from mnemolog.infra.runtime.os_errors import mapped_to_store_errors
from mnemolog.infra.runtime.regular_files import open_file

ADDRESS_FILE: Final = ".mnemolog.toml"
SCHEMES: Final = ("postgresql", "postgres")

_COMMENT: Final = "# The log of this store is in PostgreSQL. Without this file the folder is not a store."
_SECRETS: Final = frozenset({"password", "sslpassword"})


class LogAddress(NamedTuple):
    """The database of a log, and the name of the log in it."""

    url: str
    """Without a password: the driver finds that in `PGPASSWORD` or in `~/.pgpass`."""
    log: str


def is_url(path: object) -> bool:
    """Whether `path` is the URL of a PostgreSQL database."""
    return isinstance(path, str) and path.partition("://")[0] in SCHEMES and "://" in path


def without_password(url: str) -> str:
    """Return a URL without the passwords in it. Raises `InvalidInput` if it is no URL."""
    try:
        parts = urlsplit(url)
        user, at, host = parts.netloc.rpartition("@")
        kept = [(name, value) for name, value in parse_qsl(parts.query) if name not in _SECRETS]
        query = urlencode(kept, safe="/", quote_via=quote)  # To libpq a plus is no space.
        return urlunsplit((parts.scheme, f"{user.partition(':')[0]}{at}{host}", parts.path, query, ""))
    except ValueError as error:
        raise errors.InvalidInput("path", f"not the URL of a PostgreSQL database: {error}") from error


def checked_name(log: str) -> str:
    """Return the name of a log. Raises `InvalidInput` for one that is not a line of text."""
    return checked_label("log", log)


def read_address(folder: Path) -> LogAddress | None:
    """Return where the log of the store in `folder` is, None if it is not in PostgreSQL. Raises `NotAStore`."""
    path = folder / ADDRESS_FILE
    try:
        with open_file(path) as file:
            found = tomllib.load(file)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise errors.NotAStore(folder, f"{ADDRESS_FILE} is not TOML: {error}") from error
    except OSError as error:
        raise errors.StoreNotWritable(path, error.strerror or str(error), access="read") from error
    url, log = found.get("url"), found.get("log")
    if not is_url(url) or not isinstance(log, str):
        raise errors.NotAStore(folder, f'{ADDRESS_FILE} needs `url = "postgresql://..."` and `log = "..."`')
    return LogAddress(str(url), log)


def write_address(folder: Path, address: LogAddress) -> None:
    """Note in `folder` where its log is; create the folder if there is none. Writes nothing if that is noted already.

    Raises `NotAStore` for a folder that has another log or holds other files, `StoreNotWritable`, `StorageFull`.
    """
    address = address._replace(url=without_password(address.url), log=checked_name(address.log))
    found = read_address(folder)
    if found == address:
        return
    if found is not None:
        raise errors.NotAStore(folder, f"its log is {found.log!r} in {found.url}, not {address.log!r} in {address.url}")
    with mapped_to_store_errors(folder):
        if folder.is_dir() and any(folder.iterdir()):
            raise errors.NotAStore(folder, f"it holds files, but no {ADDRESS_FILE}")
        make_folder(folder)
        lines = (_COMMENT, *(f"{name} = {to_json(value).decode()}" for name, value in address._asdict().items()))
        with new_file(folder / ADDRESS_FILE) as file:
            file.write("".join(f"{line}\n" for line in lines).encode())
