"""Commands that list: sessions, scopes, agents."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from mnemolog.cli.app import AsJson, Store, StoreCommand, app
from mnemolog.cli.arguments import open_store
from mnemolog.cli.output import answer, console, print_list
from mnemolog.cli.times import given_time
from mnemolog.domain.display import counted, dated
from mnemolog.projections.read_models import SessionSummary

if TYPE_CHECKING:
    from rich.text import Text
    from rich.tree import Tree

LEVELS_MAX: Final = 100
"""Levels of one tree. A chain of a thousand sessions, each branched from the last, fits no page and no JSON."""


class SessionNode(SessionSummary, frozen=True, kw_only=True):
    """A session with those that were branched from it, in the order they were started."""

    children: tuple[SessionNode, ...] = ()


def tree(sessions: Sequence[SessionSummary]) -> list[SessionNode]:
    """Return the roots among `sessions` with all the others below them, in the order they were started.

    A root is a session without a parent, one whose parent is not among `sessions` (a scope may leave it
    out), and one that would lie deeper than `LEVELS_MAX`: its `parent` still says where it belongs.
    """
    in_order = sorted(sessions, key=lambda item: item.started_position)
    level: dict[str, int] = {}
    for item in in_order:  # A parent comes before its children; what does not is no parent.
        above = 0 if item.parent is None else level.get(item.parent, 0)
        level[item.session] = 1 if above == LEVELS_MAX else above + 1
    children: dict[str, list[SessionNode]] = {item.session: [] for item in in_order}
    roots: list[SessionNode] = []
    for item in reversed(in_order):
        below = tuple(reversed(children[item.session]))
        node = SessionNode(**msgspec.structs.asdict(item), children=below)
        if item.parent is None or level[item.session] == 1:
            roots.append(node)
        else:
            children[item.parent].append(node)
    return roots[::-1]


@app.command("sessions", cls=StoreCommand)
def sessions(
    store: Store,
    scope: Annotated[list[str] | None, typer.Option(help="Only at or below this scope; may be repeated.")] = None,
    agent: Annotated[str | None, typer.Option(help="Only of this agent.")] = None,
    title: Annotated[str | None, typer.Option(help="Only with this in the title, in any case.")] = None,
    since: Annotated[
        datetime | None,
        typer.Option(metavar="TIME", parser=given_time, help="Only started at this time or later."),
    ] = None,
    as_tree: Annotated[bool, typer.Option("--tree", help="Show branches below their origin.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the sessions.

    Example: mnemolog sessions memory/ --scope acme/support --tree
    """
    with open_store(store, create=False) as opened:
        found = opened.sessions(scope=scope or "", agent=agent, title=title, since=since)
    none = "" if found else "no sessions"
    if as_tree and found:
        answer(tree(found), _show_tree, as_json=as_json)
        return
    columns = {
        "session": lambda item: item.session,
        "title": lambda item: item.title,
        "scope": lambda item: item.scope,
        "agent": lambda item: item.agent,
        "turns": lambda item: f"{item.turns:,}",
        **({"said": _said} if any(item.is_of_the_past for item in found) else {}),
        "started": lambda item: dated(item.started_at),
        "ended": lambda item: "" if item.ended_at is None else dated(item.ended_at),
    }
    print_list(found, columns, as_json=as_json, last=none)


@app.command("scopes", cls=StoreCommand)
def scopes(store: Store, as_json: AsJson = False) -> None:
    """List the scopes that sessions were started in, with their sessions and turns.

    Example: mnemolog scopes memory/
    """
    with open_store(store, create=False) as opened:
        found = opened.scopes()
    columns = {
        "scope": lambda item: item.scope or "/",
        "sessions": lambda item: f"{item.sessions:,}",
        "turns": lambda item: f"{item.turns:,}",
    }
    print_list(found, columns, as_json=as_json)


@app.command("agents", cls=StoreCommand)
def agents(store: Store, as_json: AsJson = False) -> None:
    """List the agents that started sessions, with their sessions and turns, and the session each is in.

    Example: mnemolog agents memory/
    """
    with open_store(store, create=False) as opened:
        found = opened.agents()
    columns = {
        "agent": lambda item: item.agent,
        "sessions": lambda item: f"{item.sessions:,}",
        "turns": lambda item: f"{item.turns:,}",
        "current session": lambda item: item.current or "",
    }
    print_list(found, columns, as_json=as_json)


def _said(item: SessionSummary) -> str:
    if item.said_from is None or item.said_until is None:
        return ""
    return " to ".join(dict.fromkeys((dated(item.said_from), dated(item.said_until))))


def _show_tree(roots: list[SessionNode]) -> None:
    """Print sessions as a tree, branches below their origin."""
    from rich.tree import Tree

    for root in roots:
        shown = Tree(_node(root, parent=root.parent))
        _grow(shown, root)
        console().tree(shown)


def _grow(branch: Tree, node: SessionNode) -> None:
    for child in node.children:
        _grow(branch.add(_node(child)), child)


def _node(node: SessionNode, *, parent: str | None = None) -> Text:
    """Return a session on one line. `parent` is given if it is not printed above."""
    from mnemolog.cli.terminal import styled

    facts = [counted(node.turns, "turn")]
    if node.branched_at is not None:
        facts.append(f"branched at {node.branched_at}" + (f" of {parent}" if parent else ""))
    elif parent:
        facts.append(f"for {parent}")
    facts.append(node.reason)
    if node.ended_at is not None:
        facts.append(f"ended {dated(node.ended_at)}")
    return styled((node.session, "bold"), f" ({node.title})" if node.title else "", "  ", (", ".join(facts), "dim"))
