"""Several processes on one thread, and a process that is killed."""

import itertools
import subprocess
import sys

from mnemolog.adapters.langgraph import MnemologSaver
from tests.adapters.langgraph.checkpoints import at, checkpoint
from tests.adapters.langgraph.children import first_call, put_in

PROCESSES, CHECKPOINTS, KILLS = 3, 15, 2


def child(*arguments):
    command = [sys.executable, "-m", "tests.adapters.langgraph.children", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def acknowledged(lines, put, wrote):
    """Note the numbers of what was put, and of what was written behind it."""
    for line in lines:
        what, number = line.split()
        (put if what == "put" else wrote).add(int(number))


def test_processes_on_one_thread_each_see_their_own_line_whole(folder, store, saver):
    """A value of one process is never a delta against one of another, and nothing is lost."""
    saver.put(at("t"), checkpoint(0, {"name": ["root"], "shared": "x" * 200}), {}, {"name": 0, "shared": 0})
    children = [child("put_some", folder, name, CHECKPOINTS) for name in "abc"[:PROCESSES]]
    for started in children:
        started.communicate()
    assert [started.returncode for started in children] == [0] * PROCESSES
    found = {item.config["configurable"]["checkpoint_id"]: item for item in saver.list(at("t"))}
    assert len(found) == PROCESSES * CHECKPOINTS + 1
    for name in "abc"[:PROCESSES]:
        for number in range(CHECKPOINTS):
            item = found[f"{number + 1:08d}{name}"]
            held = {"name": [name, *range(number)], "shared": "x" * 200}
            assert item.checkpoint["channel_values"] == held
            assert item.pending_writes == [(f"task-{name}", "name", number)]
    assert store.verify().findings == ()


def test_a_killed_process_loses_nothing_that_was_acknowledged(folder, rng):
    """Neither the checkpoint between `put` and `put_writes`, nor its base, is lost; the next one continues from it."""
    put, wrote = {0}, set()
    for _ in range(KILLS):
        with child("put_for_ever", folder) as started:
            acknowledged(itertools.islice(started.stdout, rng.randrange(3, 60)), put, wrote)
            started.kill()
            acknowledged(started.stdout, put, wrote)
        with MnemologSaver.open(folder) as saver:
            found = list(saver.list(at("t")))
            numbers = [int(item.config["configurable"]["checkpoint_id"]) for item in found]
            assert numbers == list(range(numbers[0], 0, -1))
            assert max(put) <= numbers[0] <= max(put) + 1
            for item, number in zip(found, numbers, strict=True):
                assert item.checkpoint["channel_values"]["messages"] == [f"message {n}" for n in range(number)]
                if number in wrote:
                    assert item.pending_writes == [(f"task-{number}", "messages", number)]
            put.add(numbers[0])


def test_first_calls_that_meet_are_all_recorded(race):
    """Checkpoints of one thread, and items of one namespace."""
    race(first_call, kept=put_in)
