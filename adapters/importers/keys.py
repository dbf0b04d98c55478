"""Idempotency keys for turns that bring none."""

from __future__ import annotations

from collections.abc import MutableMapping
from hashlib import blake2b, sha256


class KeyMaker:
    """Makes keys from what a turn says, so that the same turn has the same key in every run.

    A key does not depend on the lines around it: a file that grew, or in which a bad line was corrected,
    keeps the keys of all its other turns. A turn that repeats another word for word in the same session
    is told apart by counting. Holds some hundred bytes for each turn that it has seen.

    With `secret`, 1 to 64 bytes, nobody can confirm a guess of a forgotten text by making its key who has not got it.
    `seen` is what was counted before, for who goes on where an earlier reading ended.
    """

    def __init__(self, secret: bytes = b"", seen: MutableMapping[int, int] | None = None) -> None:
        self._secret = secret
        self._seen: MutableMapping[int, int] = {} if seen is None else seen

    def key(self, *, session: str, role: str, speaker: str | None, text: str) -> str:
        """Return the key of the next turn that reads so."""
        # A lone surrogate must not end in a traceback: the text is refused right after.
        said = "\0".join((role, speaker or "", text)).encode(errors="surrogatepass")
        digest = self._digest(said)
        # Two turns that share 64 bits by chance only count together, in the same order every time.
        place = hash_64(session, digest)
        count = self._seen.get(place, 0) + 1
        self._seen[place] = count
        return digest if count == 1 else f"{digest}-{count}"

    def _digest(self, said: bytes) -> str:
        if self._secret:
            return blake2b(said, key=self._secret, digest_size=12).hexdigest()
        return sha256(said).hexdigest()[:24]


def hash_64(session: str, digest: str) -> int:
    """Return a number for a turn in a session. Not `hash()`: that one differs from run to run."""
    named = f"{digest}\0{session}".encode(errors="surrogatepass")
    return int.from_bytes(sha256(named).digest()[:8], "big")
