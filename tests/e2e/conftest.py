"""The command line in this process: starting Python a hundred times would take minutes."""

import fcntl
import io
import json
import os
import pty
import signal
import struct
import sys
import termios
import threading
import uuid
from contextlib import contextmanager, suppress
from typing import NamedTuple

import pytest

from mnemolog import MemoryStore
from mnemolog.cli import main
from tests.support import HashEncoder


class Ran(NamedTuple):
    """What a command did."""

    returncode: int
    stdout: str
    stderr: str

    def exited(self, code=0):
        """The same, after checking how it ended."""
        assert self.returncode == code, self
        return self

    @property
    def json(self):
        return json.loads(self.exited().stdout)


@pytest.fixture
def run(monkeypatch, capsys):
    """Run a command line in this process."""
    for name in [name for name in os.environ if name.startswith("MNEMOLOG")]:
        monkeypatch.delenv(name)

    def run(*arguments, store=None, stdin=""):
        monkeypatch.setattr(sys, "argv", ["mnemolog", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        capsys.readouterr()
        with monkeypatch.context() as only_here:
            if store is not None:
                only_here.setenv("MNEMOLOG_STORE", str(store))
            with pytest.raises(SystemExit) as exited:
                main()
        return Ran(exited.value.code or 0, *capsys.readouterr())

    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield run
    for number, handler in handlers.items():
        signal.signal(number, handler)  # `watch` sets its own.


@pytest.fixture
def screen(monkeypatch):
    """A real terminal for standard output and standard error of this process."""

    @contextmanager
    def screen(*, columns=80, kind="dumb"):
        """Yield what is drawn, complete once the block has ended."""
        mine, its = pty.openpty()
        settings = termios.tcgetattr(its)
        settings[1] &= ~termios.OPOST  # A line ends with \n alone, as it was written.
        termios.tcsetattr(its, termios.TCSANOW, settings)
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        drawn = bytearray()
        reader = threading.Thread(target=_read_all, args=(mine, drawn))
        reader.start()
        try:
            with monkeypatch.context() as only_here, os.fdopen(its, "w", encoding="utf-8") as terminal:
                only_here.delenv("COLUMNS", raising=False)
                only_here.setenv("TERM", kind)
                only_here.setattr(sys, "stdout", terminal)
                only_here.setattr(sys, "stderr", terminal)
                yield drawn
        finally:
            reader.join()
            os.close(mine)

    return screen


@pytest.fixture
def terminal(monkeypatch, screen):
    """Run a command line in this process on a real terminal; what it draws is returned as `stdout`."""

    def terminal(*arguments, columns=80, kind="dumb"):
        with monkeypatch.context() as only_here, screen(columns=columns, kind=kind) as drawn:
            for name in [name for name in os.environ if name.startswith("MNEMOLOG")]:
                only_here.delenv(name)
            only_here.setattr(sys, "argv", ["mnemolog", *map(str, arguments)])
            only_here.setattr(sys, "stdin", io.StringIO())
            with pytest.raises(SystemExit) as exited:
                main()
        return Ran(exited.value.code or 0, drawn.decode(), "")

    return terminal


@pytest.fixture
def name():
    """The name of a log that is not there yet."""
    return uuid.uuid4().hex


@pytest.fixture
def opened(postgres_url, name, tmp_path):
    """Open the log of that name in the folder of a node, which is new or was opened before."""

    def opened(node, *, url=postgres_url, **how):
        how = {"model": HashEncoder(), "background": False, **how}
        return MemoryStore.open(url, log=name, local=tmp_path / node, **how)

    return opened


def _read_all(terminal: int, into: bytearray) -> None:
    with suppress(OSError):  # EIO: the other end was closed.
        while data := os.read(terminal, 65_536):
            into += data
