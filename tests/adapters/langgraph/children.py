"""What child processes of the tests do: `python -m tests.adapters.langgraph.children WHAT FOLDER ...`."""

import sys
from pathlib import Path

from mnemolog import MemoryStore
from mnemolog.adapters.langgraph import MnemologSaver, MnemologStore
from tests.adapters.langgraph.checkpoints import at, checkpoint
from tests.children.first_calls import SESSION, checkpoints_in, items_in


def put_for_ever(folder: Path) -> None:
    """Put checkpoints and writes to them, and say of each when it is acknowledged."""
    with MnemologSaver.open(folder) as saver:
        found = saver.get_tuple(at("t"))
        config = at("t") if found is None else found.config
        number = 1 if found is None else int(config["configurable"]["checkpoint_id"]) + 1
        while True:
            held = {"messages": [f"message {n}" for n in range(number)]}
            config = saver.put(config, checkpoint(number, held), {"step": number}, {"messages": number})
            print(f"put {number}", flush=True)
            saver.put_writes(config, [("messages", number)], f"task-{number}")
            print(f"wrote {number}", flush=True)
            number += 1


def put_some(folder: Path, name: str, count: str) -> None:
    """Put so many checkpoints of thread `t`, in a line of its own behind the first one, with ids that are its own."""
    with MnemologSaver.open(folder) as saver:
        config = at("t", "00000000")
        for number in range(int(count)):
            put = checkpoint(number + 1, {"name": [name, *range(number)], "shared": "x" * 200})
            put["id"] += name
            config = saver.put(config, put, {"source": "loop"}, {"name": number + 1})
            saver.put_writes(config, [("name", number)], f"task-{name}")
            assert saver.get_tuple(config).checkpoint["channel_values"]["name"] == [name, *range(number)]


def first_call(place: str, agent: str) -> None:
    """Put a checkpoint of the shared thread and an item."""
    with MemoryStore.open(place, model=None, background=False) as store, MnemologSaver(store) as saver:
        put = checkpoint(1, {"name": agent})
        put["id"] = agent
        saved = saver.put(at(SESSION), put, {"source": "input"}, {"name": 1})
        assert saver.get_tuple(saved).checkpoint["channel_values"] == {"name": agent}
        with MnemologStore(store) as items:
            items.put((SESSION,), agent, {"text": agent})
            assert items.get((SESSION,), agent).value == {"text": agent}


def put_in(place: str) -> list[str]:
    """Return the keys of the items of a store, which are the ids of its checkpoints."""
    keys = items_in(place)
    assert checkpoints_in(place) == keys
    return keys


if __name__ == "__main__":
    {"put_for_ever": put_for_ever, "put_some": put_some}[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:])
