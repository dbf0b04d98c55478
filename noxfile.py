"""Each adapter's tests in an environment of its own, against the other side's real packages: `make adapters`.

A new one is a session of three lines here, `constraints/adapters-EXTRA.txt` with the other side's versions, and a line
in tests/adapters/conftest.py.
"""

from __future__ import annotations

from pathlib import Path

import nox

nox.options.reuse_existing_virtualenvs = True


def run_against(session: nox.Session, extra: str, *further: str) -> None:
    """Install mnemolog with an extra, and further requirements, as a user would; run the tests of that adapter.

    What the adapter's own constraints pin is pinned by them alone: other sides may exclude what constraints.txt says.
    """
    own = Path("constraints", f"adapters-{extra}.txt").absolute()
    pinned = {_name(line) for line in own.read_text().splitlines()}
    common = [line for line in Path("constraints.txt").read_text().splitlines() if _name(line) not in pinned]
    rest = Path(session.create_tmp(), "constraints.txt")
    rest.write_text("\n".join(common))
    constraints = ("-c", str(own), "-c", str(rest))
    session.install("-q", *constraints, f".[{extra}]", "pytest", "pytest-timeout", "pytest-xdist", *further)
    session.install("-q", "--force-reinstall", "--no-deps", ".")  # Its version may be the same, its files are not.
    tests = f"tests/adapters/{extra.replace('-', '_')}"
    session.run("pytest", "-n", "2", "--dist", "worksteal", tests, *session.posargs)


def _name(line: str) -> str:
    return line.partition("==")[0].strip().lower().replace("_", "-")


@nox.session
def mcp(session: nox.Session) -> None:
    """MCP: the client of the official SDK, over standard input and output and over HTTP."""
    run_against(session, "mcp")


@nox.session(default=False)
def watch(session: nox.Session) -> None:
    """Transcripts: by itself. It excludes nothing, so it is a part of the whole suite as well."""
    run_against(session, "watch")


@nox.session
def langgraph(session: nox.Session) -> None:
    """LangGraph: its conformance suite for checkpointers, its graphs, its store in memory."""
    theirs = ("langgraph", "langgraph-checkpoint-conformance", "langgraph-checkpoint-sqlite")
    run_against(session, "langgraph", *theirs)


@nox.session
def hermes(session: nox.Session) -> None:
    """Hermes: its memory manager, its loader of plugins, its backup."""
    run_against(session, "hermes")


@nox.session(name="openai-agents")
def openai_agents(session: nox.Session) -> None:
    """OpenAI Agents SDK: its own session and ours do the same; its runner, with its scripted model."""
    run_against(session, "openai-agents")
