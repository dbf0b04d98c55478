"""The console's pages and actions."""

from __future__ import annotations

from typing import Any, Final

from mnemolog.server.console import (
    audit_page,
    context_page,
    diff_page,
    event_page,
    facts_page,
    forgetting_page,
    health_page,
    jobs,
    lineage_page,
    live_page,
    overview_page,
    recall_page,
    receipts_page,
    session_page,
    sessions_page,
    tokens_page,
)
from mnemolog.server.console.page import Action, Page
from mnemolog.server.console.routes import Console, LogIn

PAGES: Final[tuple[Page, ...]] = (
    overview_page.overview,
    sessions_page.sessions,
    session_page.session,
    event_page.event,
    facts_page.facts,
    lineage_page.lineage,
    live_page.live,
    recall_page.recall,
    receipts_page.receipts,
    receipts_page.receipt,
    context_page.context,
    diff_page.diff,
    health_page.health,
    audit_page.audit,
    forgetting_page.forgetting,
    forgetting_page.certificate,
    jobs.job,
    tokens_page.tokens,
)
"""All pages. A page that is also in `NAVIGATION` is in the menu."""
ACTIONS: Final[tuple[Action, ...]] = (
    health_page.check,
    health_page.fix,
    health_page.change_model,
    audit_page.verify,
    forgetting_page.forget,
    session_page.trust_again,
    tokens_page.create,
    tokens_page.revoke,
)
"""All that forms of the console can do."""


def console_routes(*, name: str = "", write: bool = False, log_in: LogIn | None = None) -> list[Any]:
    """Return the routes of the console, for an application that sets `request.state.caller`.

    `name` is shown as that of the store. Forms change something only with `write`. `log_in` returns the caller that a
    token stands for, None for an invalid one; without it there is no login page.
    """
    return Console(PAGES, ACTIONS, name=name, write=write, log_in=log_in).routes()
