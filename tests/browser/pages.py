"""An address of each page of the console, with something to see on it."""

from typing import Final
from urllib.parse import quote, urlencode

from tests.browser.long_memory import HOSTILE, LABEL, LONGEST, STORY, TO_FORGET


def at(path: str, **query: object) -> str:
    """Return the URL of a page."""
    return f"{path}?{urlencode(query)}" if query else path


MENU: Final = {
    "Overview": "/",
    "Sessions": "/sessions",
    "Facts": "/facts",
    "Lineage": "/lineage",
    "Live": "/live",
    "Recall": "/recall",
    "Context": "/context",
    "What changed": "/diff",
    "Review": "/review",
    "Health": "/health",
    "Audit": "/audit",
    "Proposals": "/proposals",
    "Forgetting": "/forgetting",
    "Retention": "/retention",
    "Tokens": "/tokens",
}
"""The pages of the menu by their names in it."""

QUESTION = "berth for the Aurora"
ADDRESSES: Final = (
    "/",
    at("/", at=1200),
    "/sessions",
    at("/session", id=STORY),
    at("/session", id=LONGEST),
    "/event/12",
    "/facts",
    at("/sessions", q="the north quay"),
    "/lineage",
    at("/lineage", session=STORY),
    "/live",
    at("/recall", q=QUESTION, scope="harbour", then=2000),
    "/recall/receipts",
    at("/context", q=QUESTION, tokens=400, scope="harbour"),
    at("/diff", **{"from": 10, "to": 40}),
    "/review",
    "/health",
    "/audit",
    "/proposals",
    "/retention",
    at("/forgetting", sessions=TO_FORGET),
    "/tokens",
)
HOSTILE_SESSION = f"hostile/{LABEL}"
HOSTILE_ADDRESSES: Final = (
    at("/sessions", scope=HOSTILE_SESSION),
    at("/sessions", q="script"),
    at("/search", q=HOSTILE[0], here="//evil.example"),
    at("/session", id=HOSTILE_SESSION),
    at("/session", id="javascript:alert(9)"),
    at("/lineage", session=HOSTILE_SESSION),
    at("/recall", q=HOSTILE[0]),
    at("/recall", q="javascript alert", scope=HOSTILE_SESSION),
    at("/context", q=HOSTILE[0], tokens=500, session=HOSTILE_SESSION),
    at("/diff", **{"from": 20, "to": 70}),
    at("/forgetting", sessions=HOSTILE_SESSION),
    at("/", at=LABEL),
    at("/session", id=LABEL),
    at("/", scope=LABEL),
    "/" + quote(LABEL),
)
"""Where hostile text is shown, or comes from the URL. Some of these are refused; that has to be harmless as well."""
