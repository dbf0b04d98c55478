"""Idempotency keys for turns that have none."""

from __future__ import annotations

from collections.abc import MutableMapping
from hashlib import blake2b, sha256


class KeyMaker:
    """Derives keys from the content of turns, so that the same turn has the same key in every run.

    A key does not depend on other lines: if a file grows or a bad line is corrected, all other turns keep their keys.
    Turns of a session with the same words are numbered. Needs about a hundred bytes of memory per turn.

    With a `secret`, 1 to 64 bytes, a guess of a forgotten text cannot be confirmed through its key without the secret.
    `seen` has the counts of an earlier run, to resume after it.
    """

    def __init__(self, secret: bytes = b"", seen: MutableMapping[int, int] | None = None) -> None:
        self._secret = secret
        self._seen: MutableMapping[int, int] = {} if seen is None else seen

    def key(self, *, session: str, role: str, speaker: str | None, text: str) -> str:
        """Return the key of the next turn with this content."""
        # A lone surrogate must not raise here: the text is refused right after.
        said = "\0".join((role, speaker or "", text)).encode(errors="surrogatepass")
        digest = self._digest(said)
        # Two turns whose hashes collide only share a counter, in the same order in every run.
        place = hash_64(session, digest)
        count = self._seen.get(place, 0) + 1
        self._seen[place] = count
        return digest if count == 1 else f"{digest}-{count}"

    def _digest(self, said: bytes) -> str:
        if self._secret:
            return blake2b(said, key=self._secret, digest_size=12).hexdigest()
        return sha256(said).hexdigest()[:24]


def hash_64(session: str, digest: str) -> int:
    """Return a 64-bit number for a turn in a session. Not `hash()`, which differs from run to run."""
    named = f"{digest}\0{session}".encode(errors="surrogatepass")
    return int.from_bytes(sha256(named).digest()[:8], "big")
