"""What keeps a page from being abused: headers, the login cookie, and where forms lead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

LOGIN_COOKIE: Final = "mnemolog_token"
THEME_COOKIE: Final = "mnemolog_theme"

HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    # Not `no-referrer`: with that, browsers send the forms of our own pages with `Origin: null`, as forged ones have.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Vary": "Accept, Cookie",
}
"""Headers of every answer of the console: nothing from elsewhere, nothing inline, in no frame."""


def local_target(target: str) -> str:
    """Return a path with its query if it is one of this server, else the start page."""
    try:
        parts = urlsplit(target.replace("\\", "/"))
    except ValueError:
        return "/"
    is_local = target.startswith("/") and not target.startswith(("//", "/\\")) and not parts.netloc
    return target if is_local and target.isprintable() else "/"
