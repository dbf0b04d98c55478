"""docs/reports/outside.md, made of the JSON that each table's command wrote: python -m benchmarks.outside.page."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any, Final

REPORTS: Final = Path(__file__).parents[2] / "docs" / "reports"
SHORT: Final = {"REJECTED": "rejected", "REPORTED": "reported", "ACCEPTED": "**accepted**"}
Found = dict[str, Any]


def known(name: str) -> Found:
    """Return what a command found."""
    found: Found = json.loads((REPORTS / f"outside-{name}.json").read_text(encoding="utf-8"))
    return found


def written(command: str, found: Found) -> str:
    """Return by which command, when and with what a table was made."""
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    return textwrap.fill(f"`{command}` wrote this on {found['date']}: {versions}; {found['machine']}.", 120)


def row_of(line: Found) -> str:
    """Return a line of agmi's table."""
    kind = line["log"], "encrypted" if line["encrypt"] else "plain", "there" if line["projections"] else "deleted"
    verdicts = (SHORT.get(edit["verdict"], "not evaluable") for edit in line["edits"])
    return f"| {' | '.join((line['asked'].removeprefix('mnemolog, '), *kind, *verdicts))} |"


def agmi(found: Found) -> str:
    """Return the section about edits at rest."""
    edits = [edit["name"] for edit in found["lines"][0]["edits"]]
    head = ("asked", "log", "content", "projections", *(edit.split()[0] for edit in edits))
    named = textwrap.fill(f"The edits: {', '.join(edits)}.", 120, break_on_hyphens=False)
    return f"""\
## agmi: is a store that was edited noticed?

[agmi](https://pypi.org/project/agent-memory-integrity/) fills a memory through its own interface, closes it, edits what
is stored in nine ways, and asks again. *Rejected*: a read refuses to answer. *Reported*: only a call that
somebody has to make for it says so. *Accepted*: nobody noticed.

{named}

{written("make outside-agmi", found)}

| {" | ".join(head)} |
| {" | ".join("---" for _ in head)} |
{chr(10).join(map(row_of, found["lines"]))}

*Projections* are views and vectors, of a model without weights: they were there when the edited store was opened, or
had been deleted. With `witness=` a store keeps its head in a file outside of it; `verify(heads=)` has one that was
noted after each write. Of the stores in the table that agmi 0.6.3 comes with, the best rejects T1 to T8 and accepts T9.
[outside-agmi.json](outside-agmi.json) has what each refusal said.

How we run it is stricter than it needs to be: new content in an encrypted store (T1, T5) is sealed with the store's
own keys, since they lie beside the log. In PostgreSQL the row with the log's head is changed along, and T9 sets the
whole database back.

What the table does not show:

- An edit by a program that makes digests that fit. It is not noticed but by a head that is kept elsewhere, as in T9.
- Which reads noticed. An edit counts as rejected if one of `turns`, `messages`, `recall`, `context` and `find` of the
  edited session refuses; [P40](faults.md) asks every read of the table of operations, of random edits.
- Edits while the store is open, and edits of keys, of projections and of the file of heads.
- Retrieval: agmi's second table, about texts that an attacker has the agent record, needs no access to the store.

To run one line: `agmi-check --adapter benchmarks.outside.agmi.adapter:Reads`
(`ReadsWithWitness`, `Verify`, `VerifyWithHeads`).
"""


def lmeb(found: Found) -> str:
    """Return the section about ranking."""
    tables = []
    for name, data in found["sets"].items():
        kinds = list(next(iter(data["scores"].values())))
        counts = (f" ({data['questions'][kind]})" if kind in data.get("questions", {}) else "" for kind in kinds)
        heads = [kind.replace("_", " ") + count for kind, count in zip(kinds, counts, strict=True)]
        rows = [
            f"| {system} | {' | '.join(f'{scores[kind]:.3f}' for kind in kinds)} |"
            for system, scores in data["scores"].items()
        ]
        head = f"| {name} | {' | '.join(heads)} |\n| --- | {' | '.join('---:' for _ in heads)} |"
        tables.append("\n".join([head, *rows]))
    return f"""\
## LMEB: which turns come first?

[LMEB](https://arxiv.org/abs/2603.12572)'s task LoCoMo, by mteb's own code: a system gets the turns and the
questions (`SearchProtocol`), and ranks the turns of the question's conversation. The measure is NDCG at 10. No language
model judges. In parentheses: questions.

**This is LMEB's protocol on our copy of five conversations, not its official data**, which are on a model hub;
`python -m benchmarks.outside.lmeb --official` runs those. BM25 and the model alone are run by the same code on the same
copy. **The ranking of mnemolog has been fitted on these five conversations, among others**: its figures show what it
was fitted to, not what it does elsewhere. [Recall quality](recall-quality.md) has those with what was left out.

{written("make outside-lmeb DATA=…", found)}

{chr(10).join(tables)}

`text` is without a model, `hybrid` with all-MiniLM-L6-v2. [outside-lmeb-answers.json.gz](outside-lmeb-answers.json.gz)
has the ids of the ten turns that each system answered, with their scores. Published on the official ten conversations:
BM25 .422, all-MiniLM-L6-v2 .259, the best encoder .565 (LMEB, as of November 2026); they are not comparable
with the table line by line.

What the table does not show: conversations of other kinds, questions without an answer, and what an agent makes of it.
"""


def precision(found: Found) -> str:
    """Return the section about what is not to be found."""
    scores = found["scores"]
    return f"""\
## PrecisionMemBench: what should not come up?

77 cases say which of 35 beliefs a query is to find, no more and no less. Finding everything that is near costs it.

{written("make outside-precision DATA=…", found)}

| | mean precision | mean recall | passed | active passes |
| --- | ---: | ---: | ---: | ---: |
| mnemolog, all-MiniLM-L6-v2 | {scores["mean precision"]:.2f} | {scores["mean recall"]:.2f} | \
{scores["passed"]} | {scores["active passes"]} |

*Active* passes are cases in which something had to be found. Its authors publish .05 to .22 and 0 to 4 active passes
for memories with vectors, and 1.00 and 43 for their own system. **mnemolog finds all and far too much.**
[outside-precision.json](outside-precision.json) has the ids. The runner is ours, in Python, after theirs; nothing was
fitted on it.

What the table does not show: beliefs are single sentences, and all are in English about one person. Pinned beliefs and
open questions are looked up by their fields, so no memory can fail there.
"""


def corrections(found: Found) -> str:
    """Return the section about values that were corrected."""
    answers = found["answers"]
    rows = [
        f"| {way} | {sum(new for new, _ in raw)} | {sum(old for _, old in raw)} | {len(raw)} |"
        for way, raw in answers.items()
    ]
    return f"""\
## Corrections: is the old value answered?

30 statements of our own, each corrected once; then a question about each. Is the new value in the answer, and is the
old one? The question is that of [inspeximus' page](https://github.com/DanceNitra/inspeximus), which gives 0 % for
itself, 13 % for Graphiti and 47 % for mem0, on other statements and with answers of a language model.

{written("make outside-corrections", found)}

| | new | old | of |
| --- | ---: | ---: | ---: |
{chr(10).join(rows)}

Without facts nothing tells that a turn corrects another one but its words: recall gives both, the newer one first in
{sum(new for new, _ in answers["recall at 1, without facts"])} of 30, and a context has both, with their dates. With
[facts](../facts.md) the turn that no longer holds is left out (`superseded="drop"`).
[outside-corrections.json](outside-corrections.json) has a pair of numbers for each question.

What the table does not show: who writes the facts. An agent, a program or a person has to say which fact a statement
is; nothing was fitted on these 30, and they are easier than a conversation.
"""


TABLES: Final = {"agmi": agmi, "lmeb": lmeb, "precision": precision, "corrections": corrections}


def page() -> str:
    """Return the page, of what the commands wrote last; a table that none has written is left out."""
    made = [of(known(name)) for name, of in TABLES.items() if (REPORTS / f"outside-{name}.json").exists()]
    return f"""\
# Tables that others drew up

Questions that others have asked of many memories, each with one command and with raw outputs: ids, ranks and scores,
without texts. None has a language model for a judge. [Mechanisms](mechanisms.md) is a table of our own.

{chr(10).join(made)}"""


if __name__ == "__main__":
    (REPORTS / "outside.md").write_text(page(), encoding="utf-8")
