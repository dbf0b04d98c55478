"""Where the log of a store is, if it is in PostgreSQL: `.mnemolog.toml` names the database and the log."""

import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from mnemolog.domain import errors
from mnemolog.domain.encoding import to_json
from mnemolog.domain.values import checked_label
from mnemolog.infra.keys import sqlite_keys
from mnemolog.infra.log.engine import LogIdentity
from mnemolog.infra.runtime.files import as_store_error, local_path, new_file, read_file

ADDRESS_FILE: Final = ".mnemolog.toml"

_COMMENT: Final = "# The log of this store is in PostgreSQL. Without this file the folder is not a store."
_SECRETS: Final = frozenset({"password", "sslpassword"})


class LogAddress(NamedTuple):
    """The database of a log, the name of the log in it, and the database of its keys."""

    url: str
    """Without a password: the driver finds that in `PGPASSWORD` or in `~/.pgpass`."""
    log: str
    keys: str | None = None
    """The URL of the database with its keys, None if that is the same one."""

    def shown(self) -> str:
        """Return it in words."""
        return f"{self.log} in {self.url}{'' if self.keys is None else f', keys in {self.keys}'}"

    def without_passwords(self) -> "LogAddress":
        """Return it as it may be written down. Raises `InvalidInput` for what is no URL."""
        if self.keys is not None:
            require_url("keys", self.keys)
        return LogAddress(
            without_password(self.url), self.log, None if self.keys is None else without_password(self.keys)
        )


def is_url(path: object) -> bool:
    """Whether `path` is the URL of a PostgreSQL database."""
    return isinstance(path, str) and path.partition("://")[0] in ("postgresql", "postgres") and "://" in path


def require_url(field: str, value: str) -> None:
    """Raise `InvalidInput` unless `value` is the URL of a PostgreSQL database."""
    if not is_url(value):
        raise errors.InvalidInput(field, "not the URL of a PostgreSQL database")


def place_of(
    path: str | Path, *, log: str | None, local: str | Path | None, keys: str | None = None
) -> tuple[Path, LogAddress | None]:
    """Return the folder of a store, and the address of its log if `path` is the URL of a database."""
    if str(path).startswith(("http://", "https://")):
        raise errors.InvalidInput("path", f"a server is reached with `mnemolog.connect({str(path)!r}, token=…)`")
    if not is_url(path):
        for field in (name for name, value in (("log", log), ("local", local), ("keys", keys)) if value is not None):
            raise errors.InvalidInput(field, "only with the URL of a database: `postgresql://user@host/database`")
        return local_path("path", path), None
    if log is None or local is None:
        field, what = ("log", "the name of the log") if log is None else ("local", "the folder of its projections")
        raise errors.InvalidInput(field, f"a store in a database needs {what}")
    return local_path("local", local), LogAddress(str(path), log, keys)


def without_password(url: str) -> str:
    """Return a URL without the passwords in it. Raises `InvalidInput` if it is no URL."""
    try:
        parts = urlsplit(url)
        user, at, host = parts.netloc.rpartition("@")
        kept = [(name, value) for name, value in parse_qsl(parts.query) if name not in _SECRETS]
        query = urlencode(kept, safe="/", quote_via=quote)  # To libpq a plus is no space.
        return f"{parts.scheme}://{user.partition(':')[0]}{at}{host}{parts.path}{query and '?'}{query}"
    except ValueError as error:
        raise errors.InvalidInput("path", f"not the URL of a PostgreSQL database: {error}") from error


def read_address(folder: Path) -> LogAddress | None:
    """Return where the log of the store in `folder` is, None if it is not in PostgreSQL. Raises `NotAStore`."""
    found = _noted(folder)
    if found is None:
        return None
    url, log, keys = (found.get(name) for name in LogAddress._fields)
    if not is_url(url) or not isinstance(log, str):
        raise errors.NotAStore(folder, f'{ADDRESS_FILE} needs `url = "postgresql://..."` and `log = "..."`')
    if keys is not None and not is_url(keys):
        raise errors.NotAStore(folder, f'{ADDRESS_FILE}: `keys` is the URL of a database, "postgresql://..."')
    return LogAddress(str(url), log, keys)


def known_identity(folder: Path) -> LogIdentity | None:
    """Return the identity that the log at the address in `folder` had when it was opened, None if it never was."""
    found = _noted(folder) or {}
    values = [found.get(name) for name in LogIdentity._fields]
    return LogIdentity(*values) if [type(value) for value in values] == [str, int, int] else None  # type: ignore[arg-type]


def answers_alone(folder: Path) -> bool:
    """Whether the projections in `folder` may answer while PostgreSQL is away: unless it notes `away = "refuse"`."""
    found = _noted(folder)
    return found is not None and found.get("away") != "refuse"


def _noted(folder: Path) -> dict[str, Any] | None:
    path = folder / ADDRESS_FILE
    try:
        return tomllib.loads(read_file(path).decode())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise errors.NotAStore(folder, f"{ADDRESS_FILE} is not TOML: {error}") from error
    except OSError as error:
        raise as_store_error(error, path, access="read") from error


def address_of(folder: Path, given: LogAddress | None = None) -> LogAddress | None:
    """Return where the log of the store in `folder` is, None if it is not in PostgreSQL.

    `given` is used for a new or empty folder. Raises `NotAStore` for a folder that has another log or holds other
    files, `InvalidInput`.
    """
    found = read_address(folder)
    if given is not None:
        wanted = given._replace(log=checked_label("log", given.log)).without_passwords()
        if found is None and folder.exists() and (not folder.is_dir() or any(map(_is_foreign, folder.iterdir()))):
            found = read_address(folder)  # Another process may have created the store meanwhile.
            if found is None:
                raise errors.NotAStore(folder, f"it holds files, but no {ADDRESS_FILE}")
        if found is not None and given.keys is None:
            given, wanted = given._replace(keys=found.keys), wanted._replace(keys=found.keys)
        if found not in (None, wanted):
            raise errors.NotAStore(folder, f"its log is {found.shown()}, not {wanted.shown()}")
    if (given or found) is not None and (folder / sqlite_keys.KEYS_FILE).exists():
        raise errors.NotAStore(
            folder,
            f"it has a {sqlite_keys.KEYS_FILE}, but the keys of its log are in a database; move that file elsewhere",
        )
    return given or found


def _is_foreign(path: Path) -> bool:
    """Whether a file is none that a creation which was killed leaves."""
    return not path.name.lstrip(".").startswith(ADDRESS_FILE.lstrip("."))


def note_address(folder: Path, address: LogAddress, identity: LogIdentity | None = None) -> None:
    """Note in `folder` where its log is, and its identity, unless it is noted already.

    Raises `StoreNotWritable`, `StorageFull`.
    """
    path, found = folder / ADDRESS_FILE, _noted(folder)
    if found is None:
        noted = address.without_passwords()
        with suppress(errors.InvalidInput), new_file(path) as file:  # Another process was quicker.
            file.write("".join(f"{line}\n" for line in (_COMMENT, *_lines(noted), *_lines(identity))).encode())
    elif identity is not None and known_identity(folder) != identity:
        kept = [
            line for line in read_file(path).decode().splitlines() if line.partition(" =")[0] not in LogIdentity._fields
        ]
        with new_file(path, replace=True) as file:
            file.write("".join(f"{line}\n" for line in (*kept, *_lines(identity))).encode())


def _lines(noted: LogAddress | LogIdentity | None) -> list[str]:
    values = {} if noted is None else noted._asdict()
    return [f"{name} = {to_json(value).decode()}" for name, value in values.items() if value is not None]
