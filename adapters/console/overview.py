"""The first page: what this memory holds, since when, and whether it is well."""

from __future__ import annotations

from starlette.requests import Request

from mnemolog.adapters.console.moment import AsOf
from mnemolog.adapters.console.page import page
from mnemolog.adapters.http.access import Caller
from mnemolog.domain.position import Position
from mnemolog.domain.result import Result


class Overview(Result, frozen=True, kw_only=True):
    """What the overview shows."""

    position: Position
    head: Position


@page("/", title="Overview", template="overview.html")
async def overview(request: Request, caller: Caller, at: AsOf) -> Overview:
    """Show what the store held at a moment."""
    return Overview(position=at.position, head=at.head)
