"""What requests for a summary need: python -m benchmarks.summaries [--store FOLDER]

`conversations/summaries.jsonl` has 30 requests, each with the turns that a good summary rests on. They are asked by
words and with vectors, and the best hits are chosen in several ways. Printed is, for each way, for how many requests
ten hits hold at least one of these turns, and the mean share of them that they hold; then the share for each
conversation, and for the way that is best on the others. A second run with the same `--store` embeds nothing; the
stores of `benchmarks.recall_quality` serve too.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from math import log
from pathlib import Path
from statistics import fmean
from typing import Any, Final, NamedTuple

import numpy as np

from benchmarks.quality.metrics import CUT
from mnemolog import Hit, MemoryStore
from mnemolog.adapters.importers import import_files
from mnemolog.infra.embedding.encoder import SentenceTransformerEncoder
from mnemolog.projections.recall.ranking import _CHANGE
from mnemolog.projections.sql.words import terms_of

FOLDER: Final = Path(__file__).parent / "conversations"
STRETCHES: Final = CUT
POOL: Final = 50


class Asked(NamedTuple):
    """What the ways of choosing are given for one request."""

    plain: list[Hit]
    users: list[Hit]
    """Hits of `cover=True` with `roles=["user"]`."""
    cover: list[Hit]
    """All turns by likeness to the topic, best first."""
    place: dict[int, float]
    """Where a turn stands in its conversation, from 0 to 1, by position."""
    day: dict[int, float]
    """The same by the time that has passed."""
    near: Callable[[Hit, Hit], float]
    """How alike two turns are, at most 1."""


Way = Callable[[Asked], Sequence[Hit]]


def one_for_each(hits: Sequence[Hit], share: dict[int, float]) -> list[Hit]:
    """Return the best hit of each stretch of the conversation, then the others, each part best first."""
    best: dict[int, Hit] = {}
    for hit in hits:
        best.setdefault(min(int(share[hit.position] * STRETCHES), STRETCHES - 1), hit)
    chosen = {hit.position for hit in best.values()}
    return sorted(hits, key=lambda hit: hit.position not in chosen)


def is_milestone(hit: Hit) -> bool:
    """Whether it is a turn of the user that reports a change or a decision."""
    return hit.role == "user" and bool(_CHANGE.search(hit.text) or DECISION.search(hit.text))


def log_odds(hit: Hit) -> float:
    """Return the score of a hit."""
    return log(hit.relevance / (1 - hit.relevance))


def raised(hits: Sequence[Hit], by: float, which: Callable[[Hit], bool]) -> list[Hit]:
    """Return hits in the order that they have when some of them gain so much of log-odds."""
    return sorted(hits, key=lambda hit: -log_odds(hit) - by * which(hit))


def diverse(asked: Asked, hits: Sequence[Hit], weight: float) -> list[Hit]:
    """Return ten hits by maximal marginal relevance, likeness to the topic counting `weight`."""
    if not hits:
        return []
    relevant = shares({hit.position: log_odds(hit) for hit in hits})
    chosen: list[Hit] = []
    rest = list(hits)
    said = dict.fromkeys(relevant, 0.0)
    while rest and len(chosen) < CUT:
        best = max(rest, key=lambda hit: weight * relevant[hit.position] - (1 - weight) * said[hit.position])
        rest.remove(best)
        chosen.append(best)
        for hit in rest:
            said[hit.position] = max(said[hit.position], asked.near(hit, best))
    return chosen


def users(hits: Sequence[Hit]) -> list[Hit]:
    """Return the user's turns."""
    return [hit for hit in hits if hit.role == "user"]


DECISION: Final = re.compile(
    r"\b(?:decid\w+|agree[ds]?|settled|chose|chosen|choos\w+|pick(?:ed)?|book(?:ed)?|bought|order(?:ed)?|sign(?:ed|s)?"
    r"|approv\w+|accept\w+|submitted|sent|handed in|done|finish\w+|fixed|it is|we(?:'ll)? (?:take|go|do|keep)|made"
    r"|said no|consent|built|took|yes)\b",
    re.IGNORECASE,
)
"""What users write when something is decided or done. Written before anything was measured."""
WAYS: Final[dict[str, Way]] = {
    "recall as it is": lambda asked: asked.plain,
    "`cover=True`": lambda asked: asked.cover,
    "one turn for each tenth of the positions": lambda asked: one_for_each(asked.cover, asked.place),
    "one turn for each tenth of the days": lambda asked: one_for_each(asked.cover, asked.day),
    "the same by positions, of the best 50": lambda asked: one_for_each(asked.cover[:POOL], asked.place),
    "the same by days, of the best 50": lambda asked: one_for_each(asked.cover[:POOL], asked.day),
    "the user's milestones first": lambda asked: sorted(asked.cover[:POOL], key=is_milestone, reverse=True),
    "milestones gain .3": lambda asked: raised(asked.cover, 0.3, is_milestone),
    "milestones gain .6": lambda asked: raised(asked.cover, 0.6, is_milestone),
    "the user's turns gain .3": lambda asked: raised(asked.cover, 0.3, lambda hit: hit.role == "user"),
    "MMR, .9": lambda asked: diverse(asked, asked.cover[:POOL], 0.9),
    "MMR, .7": lambda asked: diverse(asked, asked.cover[:POOL], 0.7),
    "MMR, .5": lambda asked: diverse(asked, asked.cover[:POOL], 0.5),
    '`cover=True, roles=["user"]`': lambda asked: asked.users,
    "the user's turns, MMR .9": lambda asked: diverse(asked, users(asked.cover)[:POOL], 0.9),
    "the user's turns, one for each tenth, of the best 20": lambda asked: one_for_each(
        users(asked.cover)[: 2 * CUT], asked.place
    ),
}
"""Ways to choose ten hits. The last three take only the user's turns."""
LIMITS: Final = (20, 50, 100)


def lines_of(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a file of lines of JSON."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def shares(values: dict[int, float]) -> dict[int, float]:
    """Return where each value lies between the lowest and the highest, from 0 to 1."""
    low, high = min(values.values()), max(values.values())
    return {position: (value - low) / (high - low or 1) for position, value in values.items()}


def asked_of(
    store: MemoryStore, turns: Sequence[dict[str, Any]], requests: Sequence[dict[str, Any]], mode: Any, encoder: Any
) -> Iterator[Asked]:
    """Ask every request of a conversation."""
    times = {turn["key"]: datetime.fromisoformat(turn["time"]).timestamp() for turn in turns}
    vectors: dict[int, Any] = {}

    def by_vectors(one: Hit, other: Hit) -> float:
        return float(vectors[one.position] @ vectors[other.position])

    def by_words(one: Hit, other: Hit) -> float:
        first, second = set(terms_of(one.text)), set(terms_of(other.text))
        return 2 * len(first & second) / (len(first) + len(second) or 1)

    for request in requests:
        query, options = request["question"], {"scope": request["scope"], "mode": mode}
        plain = list(store.recall(query, k=CUT, **options))
        cover = list(store.recall(query, k=len(turns), cover=True, min_relevance=0, **options))
        if encoder is not None:
            new = [hit for hit in cover if hit.position not in vectors]
            for hit, parts in zip(new, encoder.chunks([hit.text for hit in new]), strict=True):
                mean = encoder.encode(parts).mean(axis=0)
                vectors[hit.position] = mean / np.linalg.norm(mean)
        yield Asked(
            plain,
            list(store.recall(query, k=CUT, cover=True, roles=["user"], **options)),
            cover,
            shares({hit.position: hit.position for hit in cover}),
            shares({hit.position: times[hit.key] for hit in cover}),
            by_words if encoder is None else by_vectors,
        )


def share_of(hits: Sequence[Hit], evidence: Sequence[str], count: int = CUT) -> float:
    """Return the share of the evidence among the first hits."""
    return len({hit.key for hit in hits[:count]}.intersection(evidence)) / len(evidence)


def main() -> None:
    """Measure, and print tables in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, help="keep the stores here")
    parser.add_argument("--model", default="all-MiniLM-L6-v2")
    arguments = parser.parse_args()
    requests = lines_of(FOLDER / "summaries.jsonl")
    encoder = SentenceTransformerEncoder(arguments.model)
    found: dict[str, dict[str, dict[str, list[float]]]] = {
        mode: {way: defaultdict(list) for way in WAYS} for mode in ("text", "hybrid")
    }
    by_role: dict[str, dict[str, Counter[str]]] = {mode: {way: Counter() for way in WAYS} for mode in found}
    reached: dict[str, dict[int, list[float]]] = {mode: {limit: [] for limit in LIMITS} for mode in found}
    with tempfile.TemporaryDirectory() as folder:
        for name in dict.fromkeys(request["conversation"] for request in requests):
            file = FOLDER / f"{name}.jsonl"
            file = file if file.exists() else FOLDER.parents[1] / "examples" / file.name
            where = (arguments.store or Path(folder)) / name / "store"
            where.parent.mkdir(parents=True, exist_ok=True)
            here = [request for request in requests if request["conversation"] == name]
            with MemoryStore.open(where, model=encoder, background=False) as store:
                import_files(store, file, agent="bench")
                store.admin.catch_up_vectors()
                for mode, ways in found.items():
                    near = encoder if mode == "hybrid" else None
                    for request, asked in zip(here, asked_of(store, lines_of(file), here, mode, near), strict=True):
                        for way, choose in WAYS.items():
                            chosen = choose(asked)[:CUT]
                            ways[way][name].append(share_of(chosen, request["evidence"]))
                            by_role[mode][way].update(hit.role for hit in chosen if hit.key in request["evidence"])
                        for limit in LIMITS:
                            reached[mode][limit].append(share_of(asked.cover, request["evidence"], limit))
    names = [*found["text"]["`cover=True`"]]
    for mode, ways in found.items():
        print(f"\n{mode}: at least one, mean share | {' | '.join(names)} | turns of the user, of the assistant\n")
        for way, by in ways.items():
            values = [value for some in by.values() for value in some]
            each = " | ".join(f"{fmean(by[name]):.2f}" for name in names)
            roles = " | ".join(str(by_role[mode][way][role]) for role in ("user", "assistant"))
            print(f"| {way} | {sum(map(bool, values))} of {len(values)} | {fmean(values):.3f} | {each} | {roles} |")
        print("in the first", *(f"{limit}: {fmean(some):.3f}" for limit, some in reached[mode].items()), sep="; ")
        for name in names:
            others = {
                way: float(np.mean([v for n, some in by.items() if n != name for v in some]))
                for way, by in ways.items()
            }
            best = max(others, key=others.__getitem__)
            now, then = fmean(ways["`cover=True`"][name]), fmean(ways[best][name])
            print(f"without {name}: {best}; on it {then:.3f}, `cover=True` {now:.3f}")


if __name__ == "__main__":
    main()
