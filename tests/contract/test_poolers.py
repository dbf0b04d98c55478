"""A pooler in front of PostgreSQL: one that gives each client a session of its own, and one that shares sessions."""

import socket
import struct
import threading
from contextlib import contextmanager, suppress
from urllib.parse import urlencode

import psycopg
import pytest

from mnemolog import MemoryStore
from mnemolog.domain import errors

READY = b"Z\x00\x00\x00\x05I"


class Session:
    """A session of the server, and the client that has asked last."""

    def __init__(self, address, startup):
        self.server = socket.socket(socket.AF_UNIX)
        self.server.connect(address)
        self.server.sendall(startup)
        self.greeting = b""
        while not self.greeting.endswith(READY):
            self.greeting += self.server.recv(65_536)
        at = self.greeting.index(b"K\x00\x00\x00\x0c") + 5  # The number of the session: a pooler invents one.
        self.greeting = self.greeting[:at] + struct.pack("!i", 7) + self.greeting[at + 4 :]
        self.client = None
        self.answering = threading.Thread(target=self.answer, daemon=True)
        self.answering.start()

    def close(self):
        """End the session: closing a socket alone would leave its reader blocked."""
        with suppress(OSError):
            self.server.shutdown(socket.SHUT_RDWR)
        self.answering.join()
        self.server.close()

    def answer(self):
        with suppress(OSError):  # A client is gone, or the test is over.
            while data := self.server.recv(65_536):
                self.client.sendall(data)


@contextmanager
def pooler(folder, url, *, shares_sessions):
    """The URL of a pooler that knows nothing of transactions: its clients take turns."""
    parts, sessions = psycopg.conninfo.conninfo_to_dict(url), []
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{folder}/.s.PGSQL.5432")
    listener.listen()

    def serve(client):
        with client, suppress(OSError):
            startup = client.recv(65_536)
            if not (shares_sessions and sessions):
                sessions.append(Session(f"{parts['host']}/.s.PGSQL.{parts.get('port', 5432)}", startup))
            session = sessions[-1]
            client.sendall(session.greeting)
            while (data := client.recv(65_536)) and data != b"X\x00\x00\x00\x04":
                session.client = client
                session.server.sendall(data)

    def accept():
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=serve, args=(client,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"postgresql://{parts['user']}@/{parts['dbname']}?{urlencode({'host': folder})}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for session in sessions:
            session.close()


def test_a_pooler_that_gives_each_client_its_session_is_no_different(tmp_path, postgres_url):
    with (
        pooler(tmp_path, postgres_url, shares_sessions=False) as url,
        MemoryStore.open(url, log="pooled", local=tmp_path / "node", model=None) as store,
    ):
        store.session("a").record("user", "Lisbon", key="1")
        assert store.recall("Lisbon").hits
        assert store.verify().sound


def test_a_pooler_that_shares_sessions_is_refused(tmp_path, postgres_url):
    """What is set for a session would be another client's, so that an append might not be durable."""
    with pooler(tmp_path, postgres_url, shares_sessions=True) as url:
        with pytest.raises(errors.StoreError, match="shares sessions by transaction") as raised:
            MemoryStore.open(url, log="shared", local=tmp_path / "node", model=None)
        assert "pool_mode = session" in raised.value.hint
