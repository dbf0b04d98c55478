"""What keeps a page from being abused: headers, the login cookie, and tokens against forged forms."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import Request

LOGIN_COOKIE: Final = "mnemolog_token"
THEME_COOKIE: Final = "mnemolog_theme"
CSRF_FIELD: Final = "csrf"

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


class FormTokens:
    """Tokens that prove that a form comes from a page of this server, for the login that it was sent with."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def token(self, request: Request) -> str:
        """Return the token for forms that are shown to whoever made a request."""
        login = str(request.cookies.get(LOGIN_COOKIE, ""))
        return hmac.new(self._secret, login.encode(errors="surrogateescape"), hashlib.sha256).hexdigest()

    def accepts(self, request: Request, form: Mapping[str, str]) -> bool:
        """Return whether a posted form has the token, and no other site sent it."""
        if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return False
        return hmac.compare_digest(form.get(CSRF_FIELD, "").encode(), self.token(request).encode())


def local_target(target: str) -> str:
    """Return a path with its query if it is one of this server, else the start page."""
    try:
        parts = urlsplit(target.replace("\\", "/"))
    except ValueError:
        return "/"
    is_local = target.startswith("/") and not target.startswith(("//", "/\\")) and not parts.netloc
    return target if is_local and target.isprintable() else "/"
