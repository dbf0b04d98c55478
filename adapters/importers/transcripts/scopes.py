"""The default scope of a session: its working folder."""

from __future__ import annotations

from mnemolog.domain.limits import SCOPE_BYTES_MAX


def scope_of(folder: str) -> str:
    """Return a folder as a scope, cut at the front to the limit of a scope."""
    kept: list[str] = []
    for segment in reversed(folder.replace("\\", "/").split("/")):
        clean = "".join(letter if letter.isprintable() else "_" for letter in segment)
        if clean and clean not in (".", "..", "*", "**"):
            if len("/".join([clean, *kept]).encode(errors="replace")) > SCOPE_BYTES_MAX:
                break
            kept.insert(0, clean)
    return "/".join(kept)
