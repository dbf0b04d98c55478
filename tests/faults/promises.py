"""What the store promises, and how often each promise is tried: the one place where the numbers are.

A fault test names its promise, `@pytest.mark.promise("P1", "kills")`; the second word is that of the number it takes
from here, which the fixture `tries` gives it. `--scale` chooses between the two figures: what every change has to
pass within minutes, and what is run over night. `--tries` overrides both, for a look at one test. A test that counts
its own tries uses `record_property("tried", n)`.
"""

from typing import Literal, NamedTuple, get_args

Scale = Literal["ci", "nightly"]
SCALES: tuple[Scale, ...] = get_args(Scale)


class Number(NamedTuple):
    """How often something is tried."""

    ci: int
    nightly: int
    gate: int | None = None
    """What `make test` tries where that is less than what `make faults` does at the scale `ci`."""

    def at(self, scale: Scale, *, gate: bool = False) -> int:
        return self.nightly if scale == "nightly" else self.gate if gate and self.gate else self.ci


PROMISES = {
    "P1": "An acknowledged append survives a killed process, whole",
    "P2": "An acknowledged append survives a power cut, as far as the disk is honest",
    "P3": "One total order; a reader that has read to N has missed nothing up to N",
    "P4": "Optimistic concurrency: one winner, nothing written by the others",
    "P5": "Retrying an append is safe",
    "P6": "History cannot be changed through the library, and change from outside is noticed",
    "P7": "Deleting every projection loses nothing; a rebuild answers the same",
    "P8": "An index states truly which log, model and position it reflects",
    "P9": "Damaged projections never crash and never lie: they are rebuilt",
    "P10": "Two models at once; changing the model is a switch, not an outage",
    "P11": "Read your writes, when asked",
    "P12": "A bad event stops a rebuild loudly, and need not stop service",
    "P13": "Disk full, read-only, out of descriptors or memory: a clear error, nothing half written",
    "P14": "Time is data, never order",
    "P15": "Forgetting is real, and history still verifies",
    "P16": "Backups restore, and their parts fit",
    "P17": "Many processes, threads and forks",
    "P18": "The WAL stays bounded",
    "P19": "Old data opens in every later release",
    "P20": "The whole store, simulated",
    "P21": "What others made is refused or rebuilt, and nothing outside of it is touched",
    "P22": "A store moved, deleted or replaced while it is open loses no acknowledged turn in silence",
    "P23": "The work on a text is linear in its size",
    "P24": "A backup never replaces a good one by a bad one, and without keys it holds no clear text",
    "P25": "What works through the whole log needs memory that does not depend on its length",
    "P26": "PostgreSQL: an acknowledged append survives a killed process, once",
    "P27": "PostgreSQL: an acknowledged append survives a crash of the server, and the chain is whole",
    "P28": "PostgreSQL: one total order over processes, and followers that miss nothing",
    "P29": "PostgreSQL: a database that has lost events is found before anything is appended to it",
    "P30": "PostgreSQL: a network that fails leaves an append known or reported unknown, and a retry adds nothing",
    "P31": "PostgreSQL: two nodes with different models, changed while both answer",
    "P33": "The server: an answered turn survives its kill and its stop under load, and a retry adds nothing",
    "P34": "Over HTTP: a connection that is cut neither loses nor doubles what is written",
    "P35": "After a forget nothing that is left confirms a guess of the content",
    "P36": "No caller fills the memory of a server with requests",
    "P37": "A backup, a copy or a restore cannot read what was forgotten before it ended",
    "P38": "No reader sees a projection half way, whatever begins it again",
    "P39": "What runs for days survives an outage of what it needs, and misses nothing",
    "P40": "A read of a log that was edited where it is stored answers as before, or says that it was",
    "P41": "A run of retention that is killed forgets each turn once, and none that is held",
    "P42": "An approval that is killed is done or not done, never half",
    "P43": "One person's file is absent, or what was there before, or whole",
}

NUMBERS: dict[str, dict[str, Number]] = {
    "P1": {
        "kills": Number(50, 2_000),
        "kills while recovering": Number(25, 500),
        "kills of watch": Number(10, 100),
        "kills within a switch": Number(50, 500),
        "kills within a restore": Number(50, 500),
        "interrupts": Number(2_000, 20_000),
    },
    "P2": {"commits": Number(100, 1_000), "cuts": Number(250, 5_000)},
    "P3": {"events of each process": Number(1_000, 20_000)},
    "P4": {"rounds": Number(100, 5_000), "notes of each process": Number(200, 1_000)},
    "P5": {"lost acknowledgements": Number(40, 200), "kills": Number(10, 400)},
    "P6": {"flips of the log": Number(600, 20_000), "flips of its header": Number(100, 800)},
    "P7": {"events": Number(2_000, 100_000), "kills within a rebuild": Number(50, 500)},
    "P8": {"kills within a write": Number(25, 500)},
    "P9": {"flips": Number(300, 10_000), "cuts": Number(100, 1_000), "flips of snapshots": Number(60, 1_500)},
    "P10": {
        "kills within an activation": Number(20, 200),
        "kills of the command": Number(10, 100),
        "turns before a build": Number(300, 10_000),
    },
    "P11": {"recalls of each thread": Number(250, 2_500)},
    "P12": {"places of an event": Number(1, 3), "changed fields": Number(25, 500)},
    "P13": {"points of each operation": Number(4, 120), "limits on descriptors": Number(4, 40)},
    "P14": {"openings at another time": Number(20, 300)},
    "P16": {"backups": Number(5, 500)},
    "P17": {
        "forks": Number(16, 200),
        "stores of children": Number(3, 100),
        "started processes": Number(2, 40),
        "first calls": Number(3, 100),
    },
    "P18": {"appends": Number(3_000, 50_000)},
    "P19": {"kills while converting": Number(12, 100)},
    "P20": {"scripts": Number(40, 20_000), "scripts in PostgreSQL": Number(6, 500), "filters": Number(200, 2_000)},
    "P21": {"hostile backups and exports": Number(24, 600)},
    "P22": {"stores replaced": Number(14, 200), "changes beside appends": Number(200, 2_000)},
    "P23": {"texts": Number(50, 2_000)},
    "P24": {"sources": Number(20, 300)},
    "P26": {"kills": Number(20, 2_000)},
    "P27": {"crashes": Number(3, 100)},
    "P28": {"events of each process": Number(150, 5_000)},
    "P29": {"restored base backups": Number(2, 50)},
    "P30": {"cuts": Number(20, 500)},
    "P31": {"turns of each node": Number(40, 1_000)},
    "P33": {"kills and stops": Number(3, 200)},
    "P34": {"cuts": Number(60, 5_000)},
    "P36": {"clients": Number(16, 64)},
    "P37": {"backups": Number(1, 40), "copies and restores": Number(1, 20)},
    "P38": {"forgettings": Number(4, 200)},
    "P41": {"kills": Number(50, 500, gate=8)},
    "P42": {"kills": Number(40, 400, gate=20)},
    "P43": {"kills": Number(50, 500, gate=8)},
    "P40": {"edits of each kind of store": Number(250, 25_000, gate=5)},
}


def number(promise: str, what: str, scale: Scale, *, gate: bool = False) -> int:
    """How often to try. Raises `KeyError` for a number that is not in the table."""
    return NUMBERS[promise][what].at(scale, gate=gate)
