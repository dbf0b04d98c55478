"""The clock of the machine changes: while a store is open, between openings, and between two processes."""

import pytest

from mnemolog import MemoryStore
from mnemolog.domain.values import Micros, to_datetime
from mnemolog.projections.projector import ProjectorStatus, StateFile, read_status
from tests.support import FakeClock, HashEncoder

YEAR = 365 * 86_400 * 1_000_000
FIRST, LAST = -1_968 * YEAR, 8_029 * YEAR
"""From the year 2 to 9999."""


class History:
    """What was recorded, and when, as a store must show it whatever its clock said."""

    def __init__(self, folder, rng):
        self.folder, self.rng = folder, rng
        self.texts, self.values, self.recorded = [], {}, []

    def moment(self):
        """A time: near the last one, years away, or an end of the calendar."""
        last = self.recorded[-1] if self.recorded else 54 * YEAR
        jump = self.rng.choice([1, -1, 1_000_000, -3_600_000_000, -YEAR, 30 * YEAR, -30 * YEAR, FIRST, LAST])
        return min(max(jump if jump in (FIRST, LAST) else last + jump, FIRST), LAST)

    def open(self, **how):
        self.clock = FakeClock(self.moment(), step=0)
        return MemoryStore.open(self.folder, model=HashEncoder(), clock=self.clock, **how)

    def act(self, store):
        """Record a turn and a value with a time to live, each at another time."""
        session = store.session("s")
        for _ in range(3):
            self.clock.set(self.moment())
            text = f"note number{len(self.texts)} of may"
            assert session.record("user", text).recorded_at == to_datetime(Micros(self.clock.now()))
            self.texts.append(text)
            self.recorded.append(self.clock.now())
        ttl_s = self.rng.choice([1, 3_600, 10 * 365 * 86_400])
        key = self.rng.choice("abc")
        if self.clock.now() + ttl_s * 1_000_000 < LAST:
            session.set(key, len(self.texts), ttl=ttl_s)
            self.values[key] = len(self.texts), self.clock.now() + ttl_s * 1_000_000

    def check(self, store, why):
        """Order is that of the log; values live by the clock; every question is answered."""
        session = store.session("s")
        assert [turn.text for turn in session.turns()] == self.texts, why
        now = self.clock.now()
        alive = {key: value for key, (value, until) in self.values.items() if now < until}
        assert session.all() == alive, why
        upto = store.head().position
        newest = store.recall(self.texts[-1], k=1, min_position=upto, asked="keep")
        assert newest.hits[0].text == self.texts[-1], why
        assert newest.vectors_cover == upto, why
        for query in ("note of may", "note of last week", "note of yesterday", "note 3 years ago"):
            assert store.recall(query), why
        moment = to_datetime(Micros(self.rng.choice(self.recorded)))
        position = store.position_at(moment)
        assert not position or store.replay(to=moment).position == position, why
        assert store.recall("note", since=moment, by="recorded").head == upto, why
        assert store.status().head == upto, why


@pytest.mark.timeout(7200)
@pytest.mark.promise("P14", "openings at another time")
def test_a_clock_that_changes_between_openings_changes_nothing_but_the_times(tmp_path, rng, seed, tries):
    """By seconds, years or to the ends of the calendar, back and forth; with two stores open at different times."""
    for number in range(tries):
        if number % 20 == 0:
            history = History(tmp_path / f"store{number}", rng)
        why = f"opening {number}, seed {seed}"
        with history.open(background=number % 4 == 0) as store:
            history.act(store)
            history.check(store, why)
            own = history.clock
            with history.open(background=False) as beside:
                history.act(beside)
                history.check(beside, why)
            history.clock = own
            history.check(store, why)
            if number % 10 == 9:
                store.rebuild()
                history.check(store, why)
                assert store.verify().sound, why
                assert store.admin.doctor().healthy, why


@pytest.mark.promise("P14")
def test_a_projector_that_waits_says_how_long_also_after_the_clock_was_set_back(tmp_path):
    """Not the years that the clock was set back by; a state without a time zone is no state."""
    at = to_datetime(Micros(54 * YEAR))
    state = StateFile(tmp_path)
    for since, left_s in ((at, 5.0), (to_datetime(Micros(84 * YEAR)), 5.0), (to_datetime(Micros(24 * YEAR)), 0.0)):
        state.write(ProjectorStatus(state="backing off", retry_in_s=5.0, since=since))
        assert read_status(tmp_path, now=at).retry_in_s == left_s
    state.write(ProjectorStatus(state="backing off", retry_in_s=5.0, since=at.replace(tzinfo=None)))
    assert read_status(tmp_path, now=at).state == "off"
