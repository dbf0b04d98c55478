"""Write the reference: the library from its docstrings, the command line from `--help` of every command."""

from __future__ import annotations

import contextlib
import inspect
import io
import os
from pathlib import Path
from unittest import mock

import mnemolog
from mnemolog import cli

FOLDER = "docs/reference"
PAGES = [
    f"{FOLDER}/{name}"
    for name in ("store", "sessions", "services", "results", "asyncio", "errors", "integrations", "command-line")
]
INTEGRATIONS = (
    "mnemolog.adapters.importers",
    "mnemolog.adapters.importers.transcripts",
    "mnemolog.adapters.support.context",
    "mnemolog.adapters.support.framework_sessions",
    "mnemolog.adapters.support.outbox",
    "mnemolog.observability.telemetry",
    "mnemolog.eventsourcing",
)
AUDIT_RESULTS = ("verification.StoredEvent", "diff.Diff", "diff.SessionDiff", "exports.LogExport", "exports.LogImport")


def write(root: Path) -> None:
    """Write all pages of the reference under `root`, replacing those of an earlier build."""
    public = [name for name in mnemolog.__all__ if name != "errors"]
    store = ["MemoryStore", *(name for name in public if inspect.isfunction(getattr(mnemolog, name)))]
    sessions = ["Session", "SessionAt"]
    twins = [name for name in public if name.startswith("Async")]
    errors = [name for name, value in vars(mnemolog.errors).items() if _is_error(value)]
    results = sorted({*public}.difference(store, sessions, twins, errors), key=str.lower)
    pages = {
        "store": _page("The store", "", [_named(name) for name in store]),
        "sessions": _page("Sessions", "", [_named(name) for name in sessions]),
        "services": _page(
            "Services of a store",
            "The attributes `store.audit`, `store.models` and `store.admin`.",
            [
                _directive("autoclass", "mnemolog.audit.service.AuditService"),
                *(_directive("autoclass", f"mnemolog.audit.{name}") for name in AUDIT_RESULTS),
                _directive("autoclass", "mnemolog.models.service.ModelService"),
                _directive("autoclass", "mnemolog.operations.service.AdminService"),
            ],
        ),
        "results": _page(
            "Results and settings", "What the store returns and takes.", [_named(name) for name in results]
        ),
        "asyncio": _page("asyncio", "", [_named(name) for name in twins]),
        "errors": _page(
            "Errors",
            "",
            [
                ".. automodule:: mnemolog.errors\n   :no-members:\n   :no-index:\n",
                *(_directive("autoexception", f"mnemolog.errors.{name}") for name in errors),
            ],
        ),
        "integrations": _page(
            "Integrations",
            "Modules for importers, frameworks and applications. The adapters have pages of their own.",
            [
                *(_heading(name, "-") + _directive("automodule", name) for name in INTEGRATIONS),
                _heading("mnemolog.adapters.watch", "-") + _directive("autoclass", "mnemolog.adapters.watch.Watcher"),
            ],
        ),
        "command-line": _command_line(),
    }
    folder = root / FOLDER
    folder.mkdir(exist_ok=True)
    for name, text in pages.items():
        path = folder / f"{name}.rst"
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def commands() -> list[str]:
    """Return the full name of every command, groups before their commands, in the order of `--help`."""
    found = ["mnemolog"]
    for name in cli.every_command():
        group, _, subcommand = name.partition(" ")
        found += [f"mnemolog {group}"] if subcommand and f"mnemolog {group}" not in found else []
        found.append(f"mnemolog {name}")
    return found


def _command_line() -> str:
    sections = [_heading(name, "-") + "::\n\n" + _indented(_help(name).rstrip()) + "\n" for name in commands()]
    return _page("Command line", "The output of `--help` of each command.", sections)


def _help(name: str) -> str:
    output = io.StringIO()
    with mock.patch.dict(os.environ, COLUMNS="90"), contextlib.redirect_stdout(output):
        status = cli.run([*name.split()[1:], "--help"] if name != "mnemolog" else ["more"])
    if status != 0:
        raise RuntimeError(f"`{name} --help` failed: {output.getvalue()}")
    return output.getvalue()


def _is_error(value: object) -> bool:
    return inspect.isclass(value) and issubclass(value, mnemolog.MnemologError)


def _named(name: str) -> str:
    value = getattr(mnemolog, name)
    kind = "autoclass" if inspect.isclass(value) else "autofunction" if inspect.isfunction(value) else "autodata"
    return _directive(kind, f"mnemolog.{name}")


def _directive(kind: str, name: str) -> str:
    return f".. {kind}:: {name}\n"


def _page(title: str, text: str, sections: list[str]) -> str:
    return "\n".join([_heading(title, "="), *([text, ""] if text else []), *sections])


def _heading(title: str, line: str) -> str:
    return f"{title}\n{line * len(title)}\n\n"


def _indented(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in text.splitlines())
