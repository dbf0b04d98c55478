"""Several agents on one store, and a process that is killed."""

from __future__ import annotations

import itertools
import subprocess
import sys

from tests.adapters.hermes.managed import Hermes, StuckEncoder, said, save
from tests.support import in_thread, shared_stores

PROCESSES, TURNS, KILLS = 2, 8, 3


def child(*arguments):
    command = [sys.executable, "-m", "tests.adapters.hermes.children", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_a_process_killed_after_sync_turn_has_lost_nothing(home, rng):
    """`kill -9`, while the model is stuck: what returned is in the log, both sides of a turn or none."""
    returned = -1
    for _ in range(KILLS):
        with child("say_for_ever", home, "one") as started:
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


def test_agents_in_several_processes_do_not_disturb_one_another(home):
    """Each with sessions of its own, all of one profile."""
    save({"model": "none"}, home)
    children = [child("say_some", home, name, TURNS) for name in "ab"[:PROCESSES]]
    for started in children:
        started.communicate()
    assert [started.returncode for started in children] == [0] * PROCESSES
    with Hermes(home).store() as store:
        for name in "ab"[:PROCESSES]:
            for number in range(TURNS):
                assert said(store, f"{name}{number}") == [f"user {number}", f"assistant {number}"]
        assert store.verify().findings == ()


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


def test_what_an_agent_asked_for_is_not_handed_to_another_one(home):
    """Two agents of one process, one stuck model."""
    encoder = StuckEncoder()
    first, second = Hermes(home, model=encoder), Hermes(home, model=encoder, user_id="another user")
    first.begin("one")
    second.begin("two")
    first.say("Where is the red boat?", "In the harbour.")
    encoder.free.set()
    assert second.ask("zebra") == ""
    assert second.ask("Where is the red boat?") == ""  # Of another user.
    first.leave()
    second.leave()
