"""A script: steps with the numbers they take, made from a seed, printed, and read back."""

import random
from typing import NamedTuple

NUMBERS = 4
NUMBER_MAX = 999
STEPS = 50

WEIGHTS = {
    "start": 4,
    "record": 14,
    "record_keyed": 6,
    "batch": 6,
    "reconcile": 2,
    "set": 6,
    "delete": 2,
    "clear": 2,
    "look_up": 2,
    "task": 4,
    "note": 4,
    "checkpoint": 4,
    "restore": 4,
    "rewind": 3,
    "end": 2,
    "branch": 3,
    "resume": 3,
    "switch": 3,
    "switch_in_place": 3,
    "rewind_to_a_new_session": 2,
    "recall": 8,
    "receipt": 1,
    "judge": 1,
    "context": 3,
    "find": 2,
    "activate": 1,
    "language": 1,
    "catch_up": 2,
    "rebuild": 1,
    "doctor": 1,
    "forget": 2,
    "reopen": 1,
    "delete_projections": 1,
    "move_the_clock": 4,
    "look_under_the_write_lock": 1,
    "flip": 3,
    "cut": 2,
    "crash": 3,
    "no_space": 1,
    "io_error": 1,
    "no_room": 1,
}
"""How often each step comes, beside the others."""


class Step(NamedTuple):
    """What to do, through which handle, with which numbers."""

    name: str
    handle: int
    numbers: tuple[int, ...]

    def __str__(self) -> str:
        return " ".join(map(str, (self.name, self.handle, *self.numbers)))


Script = tuple[Step, ...]


def script_of(seed: str, *, steps: int = STEPS) -> Script:
    """The script that a seed stands for."""
    rng = random.Random(seed)
    names = rng.choices([*WEIGHTS], weights=[*WEIGHTS.values()], k=steps - 1)
    return tuple(
        Step(name, rng.randrange(2), tuple(rng.randint(0, NUMBER_MAX) for _ in range(NUMBERS)))
        for name in ("start", *names)
    )


def written(script: Script) -> str:
    """A script as text, a step a line."""
    return "\n".join(map(str, script))


def read(text: str) -> Script:
    """A script from its text."""
    lines = (line.split() for line in text.splitlines() if line.strip())
    return tuple(Step(name, int(handle), tuple(map(int, numbers))) for name, handle, *numbers in lines)
