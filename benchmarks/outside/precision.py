"""PrecisionMemBench's cases of retrieval: python -m benchmarks.outside.precision FOLDER --json FILE.

FOLDER has beliefs.seed.json and retrieval.cases.json. Each belief is a turn: its name, aliases and content. A case says
which beliefs a query is to find, no more and no less, within scopes. Pinned beliefs and open questions are looked up by
their fields, as the benchmark's own runner does before it searches; so a case passes if what is found and what is
looked up are right. *Active* passes are those in which something had to be found.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.outside.machine import machine
from mnemolog import MemoryStore

Belief = dict[str, Any]


def scope_of(user: str, named: str) -> str:
    """Return the scope of a user's beliefs about something."""
    return "/".join(re.sub(r"[^a-z0-9-]", "-", part.lower()) for part in (user, named))


def text_of(belief: Belief) -> str:
    """Return what is recorded of a belief."""
    return " ".join([belief["canonical_name"].replace("_", " "), *belief.get("aliases", []), belief["content"]])


def looked_up(beliefs: list[Belief], user: str, case: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Return the pinned beliefs of a case, and its open questions."""
    live = [
        belief
        for belief in beliefs
        if belief["user_id"] == user
        and belief.get("pinned")
        and not belief.get("superseded_by")
        and not belief.get("resolved_at")
        and set(belief["scope"]) & set(case["scope"])
    ]
    open_questions = [belief["_id"] for belief in live if belief["type"] == "open_question"]
    return [belief["_id"] for belief in live if belief["_id"] not in open_questions], open_questions


def fits(wanted: dict[str, list[str]], found: list[str]) -> bool:
    """Return whether what was found is what was wanted."""
    only = wanted.get("shouldOnlyInclude")
    return (
        (only is None or set(only) == set(found))
        and set(wanted.get("mustInclude", [])) <= set(found)
        and not set(wanted.get("mustExclude", [])) & set(found)
    )


def found_for(store: MemoryStore, at: dict[int, Belief], user: str, case: dict[str, Any], most: int) -> list[str]:
    """Return the beliefs that a query finds, best first, each with those that take part in a relation."""
    if not case["query"].strip() or most < 1:
        return []
    hits = store.recall(
        case["query"], min(most, 20), scope=[scope_of(user, named) for named in case["scope"]] or "none"
    )
    known = {belief["_id"]: belief for belief in at.values()}
    found = dict.fromkeys(at[hit.position]["_id"] for hit in hits)
    for belief in [known[one] for one in found]:
        for other in belief.get("participants", []) if belief["type"] == "relation" else []:
            if other in known and set(known[other]["scope"]) & set(case["scope"]) and known[other]["user_id"] == user:
                found.setdefault(other)
    return list(found)


def main() -> None:
    """Run, and write what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    beliefs: list[Belief] = json.loads((arguments.folder / "beliefs.seed.json").read_text())
    cases = json.loads((arguments.folder / "retrieval.cases.json").read_text())
    answers, precision, recall, passed, active = {}, [], [], 0, 0
    with tempfile.TemporaryDirectory() as folder, MemoryStore.open(folder, background=False) as store:
        at = {}
        for belief in beliefs:
            session = store.session(belief["_id"], scope=scope_of(belief["user_id"], belief["scope"][0]))
            at[session.record("user", text_of(belief)).position] = belief
        store.admin.catch_up_vectors()
        for case in cases:
            user, wanted = case.get("userId", "test-user"), case["expect"]
            most = case.get("budget", {}).get("maxBeliefs", 20)
            pinned, questions = looked_up(beliefs, user, case)
            found = [one for one in found_for(store, at, user, case, most) if one not in pinned]
            found = found[: max(0, most - len(pinned))]
            answers[case["caseId"]] = found
            relevant = set(wanted.get("relevantBeliefs", {}).get("shouldOnlyInclude", []))
            right = len(relevant & set(found))
            precision += [right / len(found) if found else 0.0] if found or relevant else []
            recall += [right / len(relevant)] if relevant else []
            kinds = {"relevantBeliefs": found, "pinnedFacts": pinned[:most], "openQuestions": questions}
            whole = all(fits(wanted.get(kind, {}), ids) for kind, ids in kinds.items())
            passed, active = passed + whole, active + (whole and bool(relevant))
    scores = {
        "cases": len(cases),
        "mean precision": round(statistics.mean(precision), 3),
        "mean recall": round(statistics.mean(recall), 3),
        "passed": passed,
        "active passes": active,
    }
    print(scores)
    versions = {"mnemolog": version("mnemolog")}
    made = {"date": time.strftime("%Y-%m-%d"), "machine": machine(), "versions": versions, "scores": scores}
    if arguments.json:
        arguments.json.write_text(json.dumps(made | {"answers": answers}, indent=1) + "\n")


if __name__ == "__main__":
    main()
