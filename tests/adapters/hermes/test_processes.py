"""Several agents on one store, and a process that is killed."""

import itertools
import subprocess
import sys

from tests.adapters.hermes.children import first_call, said_in
from tests.adapters.hermes.managed import Hermes, said
from tests.support import in_thread, shared_stores

TURNS, KILLS = 8, 3


def child(home, session):
    command = [sys.executable, "-m", "tests.adapters.hermes.children", str(home), session]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_a_process_killed_after_sync_turn_has_lost_nothing(home, rng):
    """`kill -9`, while the model is stuck: what returned is in the log, both sides of a turn or none."""
    returned = -1
    for _ in range(KILLS):
        with child(home, "one") as started:
            for line in itertools.islice(started.stdout, rng.randrange(1, 40)):
                returned = int(line)
            started.kill()
            returned = max([returned, *map(int, started.stdout)])
        with Hermes(home).store() as store:
            texts = said(store, "one")
            count = len(texts) // 2
            assert texts == [text for n in range(count) for text in (f"user {n}", f"assistant {n}")]
            assert returned + 1 <= count <= returned + 2
            assert store.verify().findings == ()
            returned = count - 1


def test_two_agents_of_one_process_share_one_store_and_one_model(home, encoder):
    """A gateway has many. What one says the other recalls, and the first who leaves closes nothing."""
    encoder.free.set()
    first, second = Hermes(home, model=encoder), Hermes(home, model=encoder)
    first.begin("one")
    second.begin("two")
    assert shared_stores() == 1
    saying = [
        in_thread(lambda agent=agent, name=name: [agent.say(f"{name} {n}", f"yes {n}") for n in range(TURNS)])
        for agent, name in ((first, "Nero"), (second, "Bello"))
    ]
    for thread in saying:
        thread.result()
    first.leave()
    assert "Nero 1" in second.ask("Nero 1")
    with second.store() as store:
        for session, name in (("one", "Nero"), ("two", "Bello")):
            assert said(store, session) == [text for n in range(TURNS) for text in (f"{name} {n}", f"yes {n}")]
    second.leave()
    assert not shared_stores()


def test_first_calls_that_meet_are_all_recorded(race):
    """Those of two users, too: the session is started once, whoever comes first."""
    race(first_call, kept=said_in)
