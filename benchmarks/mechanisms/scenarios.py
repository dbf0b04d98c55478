"""Thirteen scenarios: what a memory promises, tried. Each ends in *holds*, *fails*, *absent*, or figures.

A scenario gets the class of an adapter and an empty folder, and returns a `Result`. It needs the standard library
alone, and runs in the environment of the memory.
"""

# Methods of the protocol may be None: each scenario looks before it calls them.
# mypy: disable-error-code="misc"

from __future__ import annotations

import itertools
import logging
import os
import random
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.mechanisms import behind
from benchmarks.mechanisms.protocol import WIDTH, Memory, Model

KILLS: Final = 20
SWITCHES: Final = 50
PAIRS: Final = 30
QUESTIONS: Final = 20
LATER: Final = 200
INDEXED: Final = 1_200
WRITERS, EACH = 4, 50
TURNS, SECONDS = 1_000, 30


@dataclass
class Result:
    """How a scenario ended."""

    verdict: str
    """`holds`, `fails`, `absent`, `not tried` or `measured`."""
    counts: dict[str, Any]
    raw: dict[str, list[int]] = field(default_factory=dict)
    """Numbers of the texts that were answered, in the order of the questions; -1 for none of those asked about."""
    said: list[str] = field(default_factory=list)
    """What the memory raised or warned, shortened."""


@dataclass(frozen=True)
class Said:
    """A text, the question that it answers, the word that is in no other, and another text for the same place."""

    text: str
    question: str
    word: str
    subject: str
    other: str
    other_word: str


def told(count: int, *, seed: int = 1) -> list[Said]:
    """Return texts that have no word in common but those of the sentence."""
    drawn = random.Random(seed)
    syllables = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
    words = {"".join(drawn.choices(syllables, k=5)) for _ in range(8 * count)}
    unused = iter(sorted(words, key=lambda _: drawn.random()))
    result = []
    for _ in range(count):
        thing, owner, place, moved = itertools.islice(unused, 4)
        sentence = f"The {thing} of {owner} is kept in {{}}."
        question = f"Where is the {thing} of {owner} kept?"
        result.append(Said(sentence.format(place), question, place, f"{owner}/{thing}", sentence.format(moved), moved))
    return result


class Heard(logging.Handler):
    """What a memory warns of while something is tried."""

    def __init__(self) -> None:
        """Hear nothing yet."""
        super().__init__(logging.WARNING)
        self.notes: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Note a record of a log."""
        self.notes.append(f"log: {record.name}: {record.getMessage()[:160]}")


@contextmanager
def listening() -> Iterator[list[str]]:
    """Collect warnings and records of logs."""
    heard = Heard()
    logging.getLogger().addHandler(heard)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield heard.notes
            own = [item for item in caught if not issubclass(item.category, (DeprecationWarning, ResourceWarning))]
            heard.notes += [f"warning: {item.category.__name__}: {str(item.message)[:160]}" for item in own]
    finally:
        logging.getLogger().removeHandler(heard)


def first(memory: Memory, user: str, said: list[Said], k: int = 1) -> list[int]:
    """Return for each question the number of the text that is answered first; -1 if it is none of these."""
    numbers = []
    for one in said:
        found = memory.find(user, one.question, k)
        numbers.append(next((n for n, each in enumerate(said) if any(each.word in text for text in found)), -1))
    return numbers


def right(numbers: list[int]) -> int:
    """Return how many questions were answered by their own text."""
    return sum(number == place for place, number in enumerate(numbers))


def child(adapter: str, folder: Path, *arguments: object) -> subprocess.Popen[str]:
    """Start a process that adds texts and prints the number of each that is acknowledged."""
    command = [sys.executable, "-m", "benchmarks.mechanisms.child", adapter, str(folder), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def durable(made: type[Memory], folder: Path, adapter: str) -> Result:
    """kill -9 during adds, 20 times: what was acknowledged is there, once."""
    drawn, acknowledged = random.Random(5), []
    for kill in range(KILLS):
        process = child(adapter, folder, f"w{kill}", 10_000)
        assert process.stdout is not None
        acknowledged.append(process.stdout.readline().strip())
        time.sleep(drawn.uniform(0.005, 0.15))
        process.send_signal(signal.SIGKILL)
        acknowledged += [line.strip() for line in process.stdout.read().splitlines() if line.endswith(".")]
        process.wait()
    memory = made(folder, Model())
    present = Counter(text for text in memory.texts("ann"))
    memory.close()
    acknowledged = [text for text in acknowledged if text]
    missing = sum(text not in present for text in acknowledged)
    doubled = sum(times > 1 for times in present.values())
    counts = {"kills": KILLS, "acknowledged": len(acknowledged), "missing": missing, "doubled": doubled}
    return Result("fails" if missing or doubled or not acknowledged else "holds", counts)


def retry(made: type[Memory], folder: Path, adapter: str) -> Result:
    """The same call with the same key, after its answer was lost: 30 texts are there once."""
    if not made.keyed:
        return Result("absent", {})
    memory, said = made(folder, Model()), told(PAIRS)
    for _, (number, one) in itertools.product(range(2), enumerate(said)):
        memory.add("ann", one.text, key=f"k{number}")
    memory.close()
    memory = made(folder, Model())
    for number, one in enumerate(said):
        memory.add("ann", one.text, key=f"k{number}")
    extra = len(memory.texts("ann")) - PAIRS
    memory.close()
    return Result("holds" if extra == 0 else "fails", {"texts": PAIRS, "calls": 3 * PAIRS, "extra": extra})


def switch(made: type[Memory], folder: Path, adapter: str) -> Result:
    """Two agents, 50 switches each while an answer is looked for in the background: none is of the other session."""
    if made.enter is None or made.prefetch is None:
        return Result("absent", {})
    memory, said = made(folder, Model()), told(2 * QUESTIONS)
    sides = {"north": said[:QUESTIONS], "south": said[QUESTIONS:]}
    for user, (side, texts) in itertools.product(("ann", "bob"), sides.items()):
        for one in texts:
            memory.add(user, one.text, session=f"{user}-{side}")
    answers: Counter[str] = Counter()

    def run(user: str) -> None:
        drawn = random.Random(user)
        for _ in range(SWITCHES):
            here, there = drawn.sample(list(sides), 2)
            memory.enter(user, f"{user}-{here}")
            memory.prefetch(user, drawn.choice(sides[here]).question)
            time.sleep(drawn.uniform(0, 0.003))
            memory.enter(user, f"{user}-{there}")
            found = memory.prefetched(user)
            answers["other"] += any(one.word in text for one in sides[here] for text in found)
            memory.prefetch(user, drawn.choice(sides[there]).question)
            found = memory.prefetched(user)
            answers["own"] += any(one.word in text for one in sides[there] for text in found)
            answers["other"] += any(one.word in text for one in sides[here] for text in found)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(run, ("ann", "bob")))
    memory.close()
    counts = {"switches": 4 * SWITCHES, "answers": answers["own"], "of the other session": answers["other"]}
    return Result("fails" if answers["other"] or not answers["own"] else "holds", counts)


def correction(made: type[Memory], folder: Path, adapter: str) -> Result:
    """30 statements, each corrected once: which one is answered, and is the old one still to be had."""
    if made.set is None:
        return Result("absent", {})
    memory, said = made(folder, Model()), told(PAIRS)
    for one in said:
        memory.set("ann", one.subject, one.text)
    for one in said:
        memory.set("ann", one.subject, one.other)
    answered = Counter[str]()
    for one in said:
        (found,) = memory.find("ann", one.question, 1) or [""]
        answered["found: new"] += one.other_word in found
        answered["found: old"] += one.word in found
        if memory.get is not None:
            answered["held: new"] += one.other_word in (memory.get("ann", one.subject) or "")
        if memory.history is not None:
            answered["old to be had"] += any(one.word in text for text in memory.history("ann", one.subject))
    memory.close()
    good = answered["found: new"] == PAIRS and (memory.get is None or answered["held: new"] == PAIRS)
    return Result("holds" if good else "fails", {"pairs": PAIRS, **answered})


def as_of(made: type[Memory], folder: Path, adapter: str) -> Result:
    """20 questions, asked again as of the same moment after 200 more texts and 20 corrections: the same answers."""
    if made.find_as_of is None or made.moment is None:
        return Result("absent", {})
    memory, said = made(folder, Model()), told(QUESTIONS)
    for one in said:
        memory.set("ann", one.subject, one.text) if memory.set else memory.add("ann", one.text)
    time.sleep(1.1)  # Some know moments by the second.
    moment = memory.moment()
    before = [memory.find_as_of("ann", one.question, 3, moment) for one in said]
    time.sleep(1.1)
    for one in told(LATER, seed=2):
        memory.add("ann", one.text)
    for one in said:
        memory.set("ann", one.subject, one.other) if memory.set else memory.add("ann", one.other)
    after = [memory.find_as_of("ann", one.question, 3, moment) for one in said]
    memory.close()
    same = sum(one == other for one, other in zip(before, after, strict=True))
    answered = sum(one.word in "".join(found) for one, found in zip(said, before, strict=True))
    counts = {"questions": QUESTIONS, "answered": answered, "the same": same}
    return Result("holds" if same == answered == QUESTIONS else "fails", counts)


def revocation(made: type[Memory], folder: Path, adapter: str) -> Result:
    """A source is declared bad: what of its 20 texts still comes up, and whether the 20 of another source do."""
    if made.distrust is None:
        return Result("absent", {})
    memory, said = made(folder, Model()), told(2 * QUESTIONS)
    for number, one in enumerate(said):
        source = "good" if number < QUESTIONS else "bad"
        memory.add("ann", one.text, source=source, session=source)
    memory.distrust("ann", "bad")
    found = [memory.find("ann", one.question, 5) for one in said]
    kept = sum(any(one.word in text for one in said[QUESTIONS:]) for text in memory.texts("ann"))
    memory.close()
    up = [any(one.word in text for text in texts) for one, texts in zip(said, found, strict=True)]
    counts = {"bad come up": sum(up[QUESTIONS:]), "good come up": sum(up[:QUESTIONS]), "bad still stored": kept}
    return Result("holds" if sum(up[QUESTIONS:]) == 0 and sum(up[:QUESTIONS]) == QUESTIONS else "fails", counts)


def erasure(made: type[Memory], folder: Path, adapter: str) -> Result:
    """The content of one of two users is erased: it is in no answer and no byte on the disk; the other's is whole."""
    if made.erase is None:
        return Result("absent", {})
    memory, said = made(folder, Model()), told(2 * QUESTIONS)
    ann, bob = said[:QUESTIONS], said[QUESTIONS:]
    for user, texts in (("ann", ann), ("bob", bob)):
        for one in texts:
            memory.add(user, one.text, session=user)
    first(memory, "ann", ann)
    memory.erase("ann")
    memory.close()
    memory = made(folder, Model())
    answers = "".join(text for one in ann for text in memory.find("ann", one.question, 5)) + "".join(
        memory.texts("ann")
    )
    left = right(first(memory, "bob", bob))
    memory.close()
    stored = b"".join(path.read_bytes() for path in behind.files(folder))
    counts = {
        "texts": QUESTIONS,
        "in answers": sum(one.word in answers for one in ann),
        "in bytes": sum(one.word.encode() in stored for one in ann),
        "of the other user, found": left,
    }
    return Result("holds" if counts["in answers"] + counts["in bytes"] == 0 and left == QUESTIONS else "fails", counts)


def tried(made: type[Memory], folder: Path, model: Model, said: list[Said]) -> tuple[int, list[int], list[str]]:
    """Open, ask each question, and close. Returns how many are right, the raw answers, and what the memory said."""
    with listening() as notes:
        numbers = [-1] * len(said)
        try:
            memory = made(folder, model)
            numbers = first(memory, "ann", said)
            notes += memory.check() if memory.check is not None else []
            memory.close()
        except Exception as error:
            notes.append(f"{type(error).__name__}: {str(error)[:160]}")
    return right(numbers), numbers, list(dict.fromkeys(notes))


def another_model(made: type[Memory], folder: Path, adapter: str) -> Result:
    """Another model at opening, of the same width and of another one: the memory says so, or answers are right."""
    if not made.models:
        return Result("not tried", {})
    said, result = told(QUESTIONS), Result("holds", {"questions": QUESTIONS})
    for name, model in (("same width", Model(WIDTH, 2)), ("other width", Model(WIDTH // 2, 2))):
        place = folder / name.split()[0]
        memory = made(place, Model())
        for one in said:
            memory.add("ann", one.text)
        memory.close()
        sound, _, usual = tried(made, place, Model(), said)
        good, result.raw[name], notes = tried(made, place, model, said)
        notes = [note for note in notes if note not in usual]
        result.counts |= {f"{name}: right": good, f"{name}: said": bool(notes), "before: right": sound}
        result.said += notes
        if good < sound and not notes:
            result.verdict = "fails"
    return result


def index_drift(made: type[Memory], folder: Path, adapter: str) -> Result:
    """The index is deleted, half of its bytes are, an older copy is put back: the memory says so, or is right."""
    if made.index is None:
        return Result("absent", {})
    said, result = told(INDEXED), Result("holds", {"questions": QUESTIONS})
    asked = said[-QUESTIONS:]
    memory = made(folder / "whole", Model())
    for number, one in enumerate(said):
        memory.add("ann", one.text)
        if number == INDEXED - 100:
            memory.close()
            old = [shutil.copytree(folder / "whole", folder / "old")]
            memory = made(folder / "whole", Model())
    memory.close()
    sound, _, usual = tried(made, folder / "whole", Model(), asked)
    result.counts["before: right"] = sound
    for way in ("deleted", "half", "older"):
        place = Path(shutil.copytree(folder / "whole", folder / way))
        found = made.index(place)
        result.counts["files of the index"] = sum(len(behind.files(path)) if path.is_dir() else 1 for path in found)
        for path in found:
            spoil(path, way, old[0] / path.relative_to(place))
        good, result.raw[way], notes = tried(made, place, Model(), asked)
        notes = [note for note in notes if note not in usual]
        result.counts |= {f"{way}: right": good, f"{way}: said": bool(notes)}
        result.said += notes
        if good < sound and not notes:
            result.verdict = "fails"
    return Result("absent", {}) if result.counts["files of the index"] == 0 else result


def spoil(path: Path, way: str, older: Path) -> None:
    """Delete a part of an index, cut its files in half, or put an older copy in its place."""
    if way == "half":
        for file in behind.files(path) if path.is_dir() else [path]:
            os.truncate(file, file.stat().st_size // 2)
        return
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    if way == "older" and older.exists():
        shutil.copytree(older, path) if older.is_dir() else shutil.copy(older, path)


def touched(made: type[Memory], folder: Path, adapter: str) -> Result:
    """A stored text is changed, and a stored text is removed, behind its back: a read refuses, or an audit says so."""
    said, counts, heard = told(QUESTIONS), dict[str, Any](), list[str]()
    for way in ("changed", "removed"):
        place = folder / way
        memory = made(place, Model())
        for one in said:
            memory.add("ann", one.text)
        usual = memory.check() if memory.check is not None else []
        memory.close()
        text, other = said[7].text, said[7].other
        if way == "changed":
            places = (made.edit or behind.edit)(place, text, other)
        else:
            places = (made.remove or behind.remove)(place, text)
        if places == 0:
            counts |= {f"{way}: not tried": 1}
            continue
        with listening() as notes:
            try:
                memory = made(place, Model())
                memory.texts("ann")
                first(memory, "ann", said)
            except Exception as error:
                notes.append(f"{type(error).__name__}: {str(error)[:160]}")
        counts[f"{way}: a read refuses"] = bool([note for note in notes if "Error" in note or "Damaged" in note])
        heard += notes
        if made.check is not None:
            try:
                found = [note for note in memory.check() if note not in usual]
            except Exception as error:
                found = [f"{type(error).__name__}: {str(error)[:160]}"]
            counts[f"{way}: an audit says so"] = bool(found)
            heard += found
    noticed = [
        any(counts.get(f"{way}: {by}") for by in ("a read refuses", "an audit says so"))
        for way in ("changed", "removed")
        if f"{way}: not tried" not in counts
    ]
    if not noticed:
        return Result("not tried", counts)
    verdict = "holds" if all(noticed) else "fails" if made.check is not None or any(noticed) else "absent"
    return Result(verdict, counts, said=[note.replace(said[7].word, "…") for note in heard])


def two_users(made: type[Memory], folder: Path, adapter: str) -> Result:
    """Two users who said the same about the same things: none is answered with what the other said."""
    memory, said = made(folder, Model()), told(QUESTIONS)
    for one in said:
        memory.add("ann", one.text, session="ann-1")
        memory.add("bob", one.other, session="bob-1")
    crossed = sum(any(one.other_word in text for text in memory.find("ann", one.question, 5)) for one in said)
    crossed += sum(any(one.word in text for text in memory.find("bob", one.question, 5)) for one in said)
    own = right(first(memory, "ann", said))
    memory.close()
    counts = {"questions": 2 * QUESTIONS, "answers of the other": crossed, "own found": own}
    return Result("holds" if crossed == 0 and own == QUESTIONS else "fails", counts)


def two_processes(made: type[Memory], folder: Path, adapter: str) -> Result:
    """Four processes add 50 texts each at once: none is lost, none is doubled, each writer's are in their order."""
    made(folder, Model()).close()
    writers = [child(adapter, folder, f"w{number}", EACH) for number in range(WRITERS)]
    acknowledged = [line for writer in writers for line in writer.communicate()[0].splitlines()]
    memory = made(folder, Model())
    present = memory.texts("ann")
    memory.close()
    ordered = [[text for text in present if text.startswith(f"w{number} ")] for number in range(WRITERS)]
    counts = {
        "wanted": WRITERS * EACH,
        "acknowledged": len(acknowledged),
        "lost": sum(text not in set(present) for text in acknowledged),
        "doubled": len(present) - len(set(present)),
        "writers out of order": sum(texts != sorted(texts) for texts in ordered),
        "processes that failed": sum(writer.returncode != 0 for writer in writers),
    }
    whole = len(acknowledged) == WRITERS * EACH and not counts["lost"] and not counts["doubled"]
    return Result("holds" if whole and not counts["writers out of order"] else "fails", counts)


def cost(made: type[Memory], folder: Path, adapter: str) -> Result:
    """1,000 texts, or as many as are added in 30 seconds, and 100 questions, one after another, in one process."""
    memory, said = made(folder, Model()), told(TURNS)
    adds, finds = list[float](), list[float]()
    for one in said:
        if sum(adds) > 1_000 * SECONDS:
            break
        start = time.perf_counter()
        memory.add("ann", one.text)
        adds.append(1_000 * (time.perf_counter() - start))
    for one in said[:100]:
        if sum(finds) > 1_000 * SECONDS:
            break
        start = time.perf_counter()
        memory.find("ann", one.question, 5)
        finds.append(1_000 * (time.perf_counter() - start))
    memory.close()
    start = time.perf_counter()
    memory = made(folder, Model())
    opened = 1_000 * (time.perf_counter() - start)
    memory.close()
    stored = sum(path.stat().st_size for path in behind.files(folder))
    figures = {
        "texts": len(adds),
        "add p50 ms": statistics.median(adds),
        "add p95 ms": statistics.quantiles(adds, n=20)[-1],
        "find p50 ms": statistics.median(finds),
        "open ms": opened,
        "bytes a text": stored / len(adds),
        "RSS MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    return Result("measured", {name: round(value, 2) for name, value in figures.items()})


Scenario = Callable[[type[Memory], Path, str], Result]
SCENARIOS: Final[dict[str, Scenario]] = {
    "durable": durable,
    "retry": retry,
    "session switch": switch,
    "correction": correction,
    "as of": as_of,
    "revocation": revocation,
    "erasure": erasure,
    "another model": another_model,
    "index drift": index_drift,
    "touched": touched,
    "two users": two_users,
    "two processes": two_processes,
    "cost": cost,
}


def adapter_named(name: str) -> type[Memory]:
    """Return the class of an adapter."""
    module: Any = __import__(f"benchmarks.mechanisms.adapters.{name}", fromlist=["Adapter"])
    found: type[Memory] = module.Adapter
    return found
