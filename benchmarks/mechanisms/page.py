"""docs/reports/mechanisms.md, made of what was found, of the scenarios, and of the protocol."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.mechanisms import protocol
from benchmarks.mechanisms.scenarios import SCENARIOS

NAMES: Final = {
    "mnemolog": "mnemolog",
    "sqlite": "SQLite, numpy",
    "chroma": "Chroma",
    "lancedb": "LanceDB",
    "langgraph": "LangGraph store",
    "langgraph_checkpoints": "LangGraph checkpoints",
    "lians": "Lians",
    "inspeximus": "inspeximus",
    "mem0": "mem0",
    "mempalace": "MemPalace",
}
"""How memories are called, in the order of the columns."""
BOLD: Final = ("holds",)
EXAMPLE: Final = Path(protocol.__file__).with_name("adapters") / "langgraph.py"


def wrapped(text: str) -> str:
    """Return a paragraph."""
    return textwrap.fill(text, 120, break_on_hyphens=False, break_long_words=False)


def row(*cells: object) -> str:
    """Return a line of a table."""
    return f"| {' | '.join(str(cell).replace('|', '/') for cell in cells)} |"


def verdict(result: dict[str, Any]) -> str:
    """Return a verdict as it is printed."""
    return f"**{result['verdict']}**" if result["verdict"] in BOLD else result["verdict"]


def shown(value: object) -> str:
    """Return a count or a figure."""
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else f"{value:,}"


def of(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the memories that were run, in the order of the columns."""
    return {name: found["memories"][name] for name in NAMES if name in found["memories"]}


def section(found: dict[str, Any], scenario: str) -> Iterator[str]:
    """Yield what a scenario came to, with counts, and by what each memory does it."""
    yield f"### {scenario[0].upper()}{scenario[1:]}\n"
    yield wrapped(inspect.getdoc(SCENARIOS[scenario]) or "") + "\n"
    results = {name: results[scenario] for name, results in of(found).items() if scenario in results}
    counts = list(dict.fromkeys(count for result in results.values() for count in result["counts"]))
    ended = [] if scenario == "cost" else [""]
    yield row("", *ended, *counts, "by")
    yield row("---", *("---" for _ in ended), *("---:" for _ in counts), "---")
    least = {count: min(r["counts"][count] for r in results.values() if count in r["counts"]) for count in counts}
    for name, result in results.items():
        numbers = [shown(result["counts"][count]) if count in result["counts"] else "" for count in counts]
        if scenario == "cost":
            best = [count != "texts" and result["counts"].get(count) == least[count] for count in counts]
            numbers = [f"**{text}**" if one else text for text, one in zip(numbers, best, strict=True)]
        said = next((note for note in result["said"] if result["verdict"] == "fails" and not result["counts"]), "")
        yield row(NAMES[name], *([verdict(result)] if ended else []), *numbers, result["how"] or said)
    if left := [NAMES[name] for name in of(found) if name not in results]:
        yield f"\nNot measured yet: {', '.join(left)}."
    yield ""


def methods() -> Iterator[str]:
    """Yield the methods of the protocol: a line each, made of its source."""
    (made,) = [node for node in ast.parse(inspect.getsource(protocol)).body if getattr(node, "name", "") == "Memory"]
    assert isinstance(made, ast.ClassDef)
    for node, following in zip(made.body, [*made.body[1:], None], strict=True):
        if isinstance(node, ast.FunctionDef):
            yield row(f"`{node.name}({ast.unparse(node.args).removeprefix('self, ')})`", "yes", ast.get_docstring(node))
        elif isinstance(node, ast.AnnAssign) and isinstance(following, ast.Expr) and isinstance(node.target, ast.Name):
            assert isinstance(following.value, ast.Constant)
            given = "no" if node.value is not None else "yes"
            yield row(f"`{node.target.id}`", given, str(following.value.value).replace("\n    ", " "))


def table(found: dict[str, Any]) -> str:
    """Return the table of verdicts."""
    memories = of(found)
    lines = [row("", *(NAMES[name] for name in memories)), row("---", *("---" for _ in memories))]
    for scenario in SCENARIOS:
        if scenario != "cost":
            cells = (
                verdict(results[scenario]) if scenario in results else "not tried" for results in memories.values()
            )
            lines.append(row(scenario, *cells))
    return "\n".join(lines)


def with_table(text: str, found: dict[str, Any]) -> str:
    """Return docs/comparison.md with the table of today."""
    start, end = "<!-- mechanisms -->\n", "\n<!-- end -->"
    return text.partition(start)[0] + start + table(found) + end + text.partition(end)[2]


def page(found: dict[str, Any]) -> str:
    """Return the page."""
    versions = ", ".join(
        f"{NAMES[name]} {next((r['version'] for r in results.values() if r['version']), 'not installed')}"
        for name, results in of(found).items()
        if name != "sqlite"
    )
    made = f"`make mechanisms` wrote this on {found['date']}: Python {found['python']}, {found['machine']}; {versions}."
    sections = "\n".join(line for scenario in SCENARIOS for line in section(found, scenario))
    return f"""\
# Mechanisms, measured

Benchmarks of memories measure answers. This one measures what a memory *is*: whether what it acknowledged is there
after a kill, whether a corrected value comes up again, what is left of somebody who was erased. It has thirteen
scenarios; no language model judges anything.

{wrapped(made)}

{table(found)}

*Holds*: the scenario came out as it says. *Fails*: it did not; the counts are below. *Absent*: the memory has no such
thing, and nothing was built in its place. *Not tried*: it cannot be tried here. Every memory runs at its own defaults,
in an environment of its own, pinned in `benchmarks/mechanisms/requirements`. Before a *fails* was believed its
documentation was read for a better way; "by" says what was used. Raw outputs, as numbers of texts:
[mechanisms.json](mechanisms.json).

## What the tables do not show

- **Who chose the scenarios.** We did, and mnemolog was built for them. *Absent* does not mean that something is
  missing: a vector store need not know what was corrected.
- **How well anything is found.** The model has no weights: texts that share words are similar, and the words of the
  questions are unlike. [Recall](recall-quality.md) and [outside](outside.md) are about that.
- **A power cut.** kill -9 leaves the operating system's cache; [faults](faults.md) cuts the power of mnemolog alone.
- **An attacker who knows the memory.** *Touched* changes bytes as a careless program would; [agmi](outside.md) more.
- **Servers.** Each memory is a library in a process, over files. Lians and mem0 have servers that do more.
- **Large stores.** 20 to 1,200 texts.

## The scenarios

{sections}
## One more memory

An adapter is a module in `benchmarks/mechanisms/adapters` with a class `Adapter(Memory)`, at most 100 lines, and a file
with pinned versions of the same name in `requirements`. It runs in the memory's own environment, where mnemolog is not:
import nothing but the memory, the standard library and `benchmarks.mechanisms.protocol`. Try it with
`python -m benchmarks.mechanisms NAME --scenario retry`; an error in an adapter looks like a failure of the memory, so
run `python -m benchmarks.mechanisms.one NAME retry out.json` in its environment to see the traceback.

{row("", "needed", "what it does")}
{row("---", "---", "---")}
{chr(10).join(methods())}

- `folder` may not exist yet. What is opened again there has to be what was closed.
- `model` is called with a text and returns a list of numbers of length 1; `model.width` is how many, and `model.name`
  tells one model from another. `benchmarks.mechanisms.embedding_service.embedding_url()` has it behind an interface
  like OpenAI's, for memories that take a service alone.
- Texts are ASCII, one sentence each; users, sessions, sources and keys are short words.
- Do not catch what the memory raises: that is how it says that something is wrong. Its warnings and logs are heard.
- Two agents may call from two threads; four processes may open the folder at once.
- Say in `how` what stands for what, and quote the page where the memory says so.

One that is whole, [langgraph.py](../../benchmarks/mechanisms/adapters/langgraph.py):

```python3
{EXAMPLE.read_text().strip()}
```

The adapter of LanceDB was written from the docstrings of the protocol that this page shows.
"""
