"""The status of a projector, and the file that shows it to other processes.

Each projector has a small file of its own, `projections/projectors/<token>.json`, while it runs. The file is only for
display: nothing depends on it.
"""

from __future__ import annotations

import secrets
import socket
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Final, Literal

import msgspec

from mnemolog.domain.clock import UtcTime
from mnemolog.domain.encoding import UNDECODABLE, to_json
from mnemolog.domain.position import Position
from mnemolog.domain.result import Result
from mnemolog.domain.store_layout import PROJECTIONS
from mnemolog.infra.runtime.atomic_files import make_folder, replace_file
from mnemolog.infra.runtime.processes import is_running
from mnemolog.infra.runtime.regular_files import read_file

ProjectorState = Literal["off", "idle", "working", "standing by", "backing off", "stopped", "dead"]

PROJECTORS: Final = "projectors"

_SHOWN_FIRST: Final[tuple[ProjectorState, ...]] = ("working", "backing off", "idle", "standing by", "dead")
"""The order in which one of several projectors is chosen to be shown."""


class ProjectorStatus(Result, frozen=True, kw_only=True):
    """What the background projector of a store is doing."""

    state: ProjectorState
    """`off`: none is running. `stopped`: this store is closed. `dead`: its thread or process ended without closing."""
    position: Position | None = None
    """The last position that the vectors cover, as last reported; None before the first report."""
    error: str | None = None
    """The last error since the last success."""
    failed_at: UtcTime | None = None
    failures: int = 0
    """Number of failures in a row."""
    retry_in_s: float | None = None
    waits_for: str | None = None
    """The process that embeds, while this projector stands by."""
    since: UtcTime | None = None
    """When this state began."""
    pid: int | None = None
    host: str | None = None

    @property
    def trouble(self) -> str | None:
        """Why the vectors stay behind, in words; None if nothing is wrong."""
        if self.state not in ("backing off", "dead"):
            return None
        return f"the background projector is {self.state}: {self.error or 'it gave no reason'}"


# Made at import: `checked_json` has the reason.
_DECODER: Final = msgspec.json.Decoder(ProjectorStatus)


class StateFile:
    """The file of one projector. Failing to write it is harmless: `status()` returns the same."""

    def __init__(self, projections: Path) -> None:
        self._folder = projections / PROJECTORS
        self._path = self._folder / f"{secrets.token_hex(8)}.json"

    def write(self, status: ProjectorStatus) -> None:
        """Replace the file. It is not synced, because it is not needed after a power cut."""
        with suppress(OSError):
            make_folder(self._folder, root=PROJECTIONS)
            replace_file(self._path, to_json(status), prefix="state", synced=False)

    def remove(self) -> None:
        """Delete the file, because the projector has stopped."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def sweep(self) -> None:
        """Delete the files of processes that are gone."""
        for path, status in _files(self._folder):
            if status.state == "dead":
                with suppress(OSError):
                    path.unlink(missing_ok=True)


def read_status(projections: Path, *, now: datetime) -> ProjectorStatus:
    """Return the status of a projector of another process, chosen by `_SHOWN_FIRST`."""
    found = [status for _, status in _files(projections / PROJECTORS)]
    if not found:
        return ProjectorStatus(state="off")
    chosen = min(found, key=lambda status: _SHOWN_FIRST.index(status.state))
    if chosen.retry_in_s is None or chosen.since is None:
        return chosen
    past_s = max(0.0, (now - chosen.since).total_seconds())  # The clock may have been set back.
    return msgspec.structs.replace(chosen, retry_in_s=max(0.0, chosen.retry_in_s - past_s))


def _files(folder: Path) -> list[tuple[Path, ProjectorStatus]]:
    """Return the readable files. The status of a process that has ended is `dead`, whatever its file says."""
    found: list[tuple[Path, ProjectorStatus]] = []
    for path in sorted(folder.glob("[!.]*.json")):
        try:
            status = _DECODER.decode(read_file(path))
        except (OSError, *UNDECODABLE):
            continue  # Removed meanwhile, or half of it after a power cut.
        if status.state not in _SHOWN_FIRST:
            continue
        if status.state != "dead" and _is_gone(status):
            why = f"process {status.pid} on {status.host} is gone; it was {status.state}"
            why += f" ({status.error})" if status.error else ""
            status = msgspec.structs.replace(status, state="dead", error=why, retry_in_s=None, waits_for=None)
        found.append((path, status))
    return found


def _is_gone(status: ProjectorStatus) -> bool:
    if status.pid is None or status.host != socket.gethostname():
        return False  # Processes of another machine cannot be checked.
    return not is_running(status.pid)
