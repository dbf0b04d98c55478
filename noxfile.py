"""Each adapter's tests in an environment of its own, against the other side's real packages: `make adapters`.

To add one: a session of three lines here, `constraints/adapters-EXTRA.txt` with the other side's versions, and a line
in tests/adapters/conftest.py.
"""

from __future__ import annotations

import sysconfig
from pathlib import Path

import nox

nox.options.reuse_existing_virtualenvs = True
EXTRAS = nox.project.load_toml("pyproject.toml")["project"]["optional-dependencies"]


def run_against(session: nox.Session, extra: str, *further: str, tests: str = "") -> None:
    """Install what an extra requires, if it exists, and `further` packages, above this environment; run the tests.

    An adapter's environment sees the packages of the one that nox runs in, mnemolog among them, and holds only what is
    missing there or needed in another version. The adapter's own constraints win over constraints.txt: another side may
    exclude what is pinned there.
    """
    below = sysconfig.get_path("purelib")
    own = Path(session.virtualenv.location, Path(below).relative_to(sysconfig.get_path("data")))
    Path(own, "below.pth").write_text(f"import site; site.addsitedir({below!r})\n")
    constraints = Path("constraints", f"adapters-{extra}.txt").absolute()
    session.install("-q", "-c", str(constraints), *EXTRAS.get(extra, ()), *further)
    tried = [tests] if tests else [f"tests/adapters/{extra.replace('-', '_')}", "tests/adapters/test_pages.py"]
    session.run("python", "-m", "pytest", "-n", "2", "--dist", "worksteal", *tried, *session.posargs)


@nox.session
def mcp(session: nox.Session) -> None:
    """MCP: the client of the official SDK, over standard input and output and over HTTP."""
    run_against(session, "mcp")


@nox.session(default=False)
def watch(session: nox.Session) -> None:
    """Watching files. It excludes nothing, so the whole suite runs these tests as well."""
    run_against(session, "watch")


@nox.session
def chroma(session: nox.Session) -> None:
    """Chroma: folders that its own library has written."""
    run_against(session, "chroma")


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


@nox.session(name="anthropic-memory")
def anthropic_memory(session: nox.Session) -> None:
    """Anthropic's memory tool: the commands of its SDK, beside its own tool over a folder."""
    run_against(session, "anthropic-memory")


@nox.session
def cloudevents(session: nox.Session) -> None:
    """CloudEvents: the parser of its package reads what a server and a store give."""
    run_against(session, "cloudevents", "cloudevents")


@nox.session
def frameworks(session: nox.Session) -> None:
    """LlamaIndex and Pydantic AI: `examples/llama_index_memory.py` and `examples/pydantic_ai_history.py`."""
    run_against(session, "frameworks", "llama-index-core", "pydantic-ai-slim")


@nox.session
def opentelemetry(session: nox.Session) -> None:
    """OpenTelemetry: the spans of `examples/opentelemetry_spans.py`, in the exporter of its SDK."""
    run_against(session, "opentelemetry", "opentelemetry-sdk")


@nox.session
def server(session: nox.Session) -> None:
    """The server's API against its own description: schemathesis and generated clients use the OpenAPI document.

    Those in TypeScript, a client and a reader of the format, need `node` 20 and `npm`; without them they are skipped.
    """
    run_against(session, "server", "schemathesis", "openapi-python-client", tests="tests/server/schema")
