"""What happens to a store: reopened, stripped, damaged, rebuilt, full, crashed, its clock set, its model changed.

What a later version can do to a whole store belongs here as well. A restored backup would put an earlier
`StoreModel.past` in force.
"""

from __future__ import annotations

import functools
import os
import shutil
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from mnemolog import InvalidInput, MnemologError, StorageFull
from mnemolog.domain.choices import LANGUAGES
from mnemolog.domain.events import RecordedEvent
from mnemolog.domain.store_layout import CHECKSUM_PART
from mnemolog.infra.log.sqlite.engine import SqliteEngine, forbid_rewriting
from mnemolog.projections.sql import database as sealing
from tests.faults.simulation.conversations import Conversations
from tests.faults.simulation.failing import Crash, Failing, crash, io_error, no_space
from tests.faults.simulation.questions import Questions
from tests.faults.simulation.world import HANDLES, Mismatch, Over, agree
from tests.session_states import Histories, state_digest
from tests.support import decided_on, read_all

JUMPS_S = (0.25, 1, 5, 3_600, -1, -5, -3_600, 3e8, -3e8)
OPERATIONS_MAX = 60
"""Up to which operation of a disk it is made to fail. What takes fewer is done before."""
LARGE = 40_000
"""Characters that need more pages than a log has to spare."""


class Accidents(Conversations, Questions):
    """Steps of the store as a whole."""

    def __init__(self, base: Path, failing: Failing | None = None) -> None:
        super().__init__(base, failing)
        self.ever = defaultdict[str, set[str]](set)
        """Digests of the states that sessions were in, those included that can be made from the log no more."""
        self.before: list[list[RecordedEvent]] = []
        """The log as it was read before each forgetting."""

    def reopen(self, *_: int) -> None:
        self.close()
        self.open()

    def delete_projections(self, *_: int) -> None:
        self.close()
        shutil.rmtree(self.folder / "projections", ignore_errors=True)
        self.open()

    def catch_up(self, *_: int) -> None:
        if self.with_models:
            self.attempt(self.store.admin.catch_up_vectors)

    def rebuild(self, what: int, *_: int) -> None:
        if what % 3 and self.with_models:
            self.attempt(lambda: self.store.rebuild("vectors"))
        else:
            self.attempt(lambda: self.store.rebuild("views"))

    def activate(self, which: int, *_: int) -> None:
        if not self.with_models:
            return
        half = which % 2
        encoder = self.encoders[half]
        self.attempt(lambda: self.store.models.add(encoder))
        fact = functools.partial(self.model.activated, half)
        self.append(lambda: self.store.models.activate(encoder), *([] if self.model.now.model == half else [fact]))

    def language(self, which: int, *_: int) -> None:
        """The words of the simulation are found in every language, also as of a position with another one."""
        wanted = list(LANGUAGES)[which % len(LANGUAGES)]
        changed = self.attempt(self.store.admin.language) != wanted
        self.append(lambda: self.store.admin.set_language(wanted), *([self.model.noticed] if changed else []))

    def forget(self, which: int, how: int, *_: int) -> None:
        """A session with all it holds, or one or two turns: nothing of it is in any answer, as of any position."""
        then, _ = self.pick(which)
        if how % 3 == 0:
            gone, wish = self.model.content_of(then.name), {"session": then.name}
        else:
            said = [turn.position for turn in self.model.turns if turn.position > self.model.adopted]
            chosen = {said[(which + how * n) % len(said)] for n in range(1 + how % 2)} if said else set()
            gone, wish = chosen, {"positions": sorted(chosen)}
        if not gone or min(gone) <= self.model.adopted:
            return
        if self.store.parts.log.keyring is None:
            self.refused(InvalidInput, lambda: self.store.forget(**wish))
            return
        sessions = {self.model.journal[position - 1].session for position in gone}
        wish["questions"] = (
            how % 2 == 0 and not self.model.adopted
        )  # All are asked at the root, which covers everything.
        ever = {at for at, fact in enumerate(self.model.journal, 1) if fact.session == then.name}
        lost = [it for it in self.receipts if wish["questions"] or {*it[1]} & (ever if "session" in wish else gone)]
        self._note_states()  # Writers that have not noticed yet still know them with what is forgotten here.
        self.before.append(read_all(self.store.parts.log))
        report = self.append(
            lambda: self.store.forget(**wish), *[self.model.noticed] * (3 + len(sessions) + bool(lost))
        )
        agree((report.pending, report.events), (None, len(gone) + len(lost)), "what was forgotten")
        self.receipts = [it for it in self.receipts if it not in lost]
        self.unanswerable |= {receipt for receipt, _ in lost}
        self.model.forget(gone)

    def doctor(self, what: int, *_: int) -> None:
        self.attempt(lambda: self.store.admin.doctor(deep=what % 2 == 0, fix=what % 3 == 0))

    def move_the_clock(self, which: int, *_: int) -> None:
        self.clock.advance(seconds=JUMPS_S[which % len(JUMPS_S)])
        self.model.time = self.clock.now()

    def look_under_the_write_lock(self, *_: int) -> None:
        """What decisions are made on: in the end the states now, at no time one that never was."""
        current = self._note_states()
        *known, now = decided_on(self.store, *current)
        agree(now, current, "states under the lock")
        strange = {(name, digest) for found in known for name, digest in found.items() if digest not in self.ever[name]}
        if strange and not strange <= self._half_noticed():
            raise Mismatch("a writer knows a state that never was")

    def _half_noticed(self) -> set[tuple[str, str]]:
        """States as a writer folds them on that has not noticed a forgetting: what it knew, then what is left.

        Nothing comes of them. The events of the forgetting are where it would write, and it decides anew.
        """
        left, found = read_all(self.store.parts.log), set[tuple[str, str]]()
        for known in self.before:
            for noticed in range(len(known)):
                histories = Histories()
                for event in (*known[:noticed], *left[noticed:]):
                    histories.apply(event)
                    found.update((name, state_digest(state)) for name, state in histories.sessions.items())
        return found

    def _note_states(self) -> dict[str, str]:
        """Note which states sessions were in up to now, and return what they are in."""
        histories, current = Histories(), dict[str, str]()
        for event in read_all(self.store.parts.log):
            histories.apply(event)
            current = {name: state_digest(state) for name, state in histories.sessions.items()}
            for name, digest in current.items():
                self.ever[name].add(digest)
        return current

    # Damage.

    def flip(self, which: int, place: int, more: int, *_: int) -> None:
        """One bit of one file of the projections, while nobody has it open."""
        self._damage(which, lambda path, size: _flip(path, (place * 1_000 + more) % (8 * size)))

    def cut(self, which: int, place: int, *_: int) -> None:
        """The end of one file of the projections, or all of it."""
        self._damage(which, lambda path, size: os.truncate(path, place * size // 1_000))

    def _damage(self, which: int, damage: Callable[[Path, int], None]) -> None:
        self.close()
        files = sorted(path for path in self.folder.glob("projections/**/*") if path.is_file() and _is_guarded(path))
        if files:
            path = files[which % len(files)]
            damage(path, path.stat().st_size)
            self.suspect = set(range(HANDLES))
        self.open()

    # A disk that fails.

    def crash(self, what: int, at: int, which: int, more: int) -> None:
        """The process ends before an operation of the disk, or when something is just done."""
        self._amid(what, (which, more, at, which), crash, at=at, for_ever=True)

    def no_space(self, what: int, at: int, which: int, more: int) -> None:
        """The disk is full from an operation on, or for one of them only."""
        self._amid(what, (which, more, at, which), no_space, at=at, for_ever=more % 2 == 0)

    def io_error(self, what: int, at: int, which: int, more: int) -> None:
        """As before, and the handles that have seen it are not used again."""
        self._amid(what, (which, more, at, which), io_error, at=at, for_ever=more % 2 == 0)

    def _amid(
        self, what: int, numbers: tuple[int, ...], effect: Callable[[bool], None], *, at: int, for_ever: bool
    ) -> None:
        if self.failing is None or not self.model.sessions:
            return
        names = list(AMID)
        step: Callable[..., str | None] = getattr(self, names[what % len(names)])
        # Appending takes three or four operations: counted to sixty, nearly all of it would be over by then.
        self.failing.arm(effect, at=1 + at % AMID[names[what % len(names)]], for_ever=for_ever)
        stores = self.stores
        try:
            step(*numbers)
        except Over:
            pass
        except (Crash, MnemologError) as error:
            self.hindered(error)
        happened = self.failing.disarm()
        if self.stores is stores and (effect is crash or (happened and effect is io_error)):
            self.recover()
        self.failing.happened = False
        for name in self.model.sessions:
            self.check(name)

    def no_room(self, which: int, *_: int) -> str | None:
        """SQLite's own refusal: the log may not grow. Once it may again, the same is recorded."""
        then, session = self.pick(which)
        if then.ended or not isinstance(self.store.parts.log.engine, SqliteEngine):
            return None
        text, large = self.new_name("amber "), {"large": "x" * LARGE}
        small = self.new_name("small ")  # The writer has its connection when this is recorded.
        self.append(lambda: session.record("user", small), functools.partial(self.model.said, then.name, small))
        driver = self.store.parts.log.appends.connection.driver
        driver.set_authorizer(None)  # It refuses to set what a log must not be without.
        pages, usual = (driver.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "max_page_count"))
        driver.execute(f"PRAGMA max_page_count={pages}").fetchall()
        self.refused(StorageFull, lambda: session.record("user", text, metadata=large))
        driver.execute(f"PRAGMA max_page_count={usual}").fetchall()
        forbid_rewriting(driver)
        fact = functools.partial(self.model.said, then.name, text)
        self.append(lambda: session.record("user", text, metadata=large), fact)
        return then.name


AMID = {
    "batch": 5,
    "record_keyed": 5,
    "switch": 5,
    "restore": 5,
    "task": 5,
    "branch": 5,
    "resume": 5,
    "recall": 12,
    "catch_up": OPERATIONS_MAX,
    "rebuild": OPERATIONS_MAX,
    "activate": OPERATIONS_MAX,
    "doctor": OPERATIONS_MAX,
}
"""In the middle of what a disk fails, and up to which operation of it."""


def _is_guarded(path: Path) -> bool:
    """Whether damage to a file can be seen. A database without its seal, as a crash leaves it, is not judged."""
    seals = path.name.endswith(CHECKSUM_PART)
    sealed = path.name != "views.db" or sealing.seal_of(path).exists()
    return path.stat().st_size > 0 and sealed and not seals


def _flip(path: Path, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(bit // 8)
        (byte,) = file.read(1)
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))
