"""What child processes of the tests do: `python -m tests.adapters.hermes.children HOME SESSION`."""

import os
import sys
from pathlib import Path

from tests.adapters.hermes.managed import Hermes, read
from tests.children.first_calls import SESSION, said
from tests.support import StuckEncoder


def say_for_ever(home: Path, session: str) -> None:
    """Say turn after turn, with a model that never answers; tell of each when `sync_turn` has returned."""
    agent = Hermes(home, model=StuckEncoder())
    agent.begin(session)
    number = len(agent.provider._outbox.ask(lambda store: store.turns(session))) // 2
    while True:
        agent.provider.sync_turn(f"user {number}", f"assistant {number}", session_id=session)
        print(number, flush=True)
        agent.provider.queue_prefetch(f"user {number}", session_id=session)
        number += 1


def first_call(place: str, agent: str) -> None:
    """Begin the shared session for a user of its own, and say a turn in it."""
    os.environ["HERMES_HOME"] = place
    Path(place).mkdir(exist_ok=True)
    hermes = Hermes(Path(place), model="none", user_id=agent)
    hermes.begin(SESSION)
    hermes.answered(agent, "")
    hermes.leave()


def said_in(place: str) -> list[str]:
    """Return what was said in the shared session of a Hermes home."""
    return said(str(read(Path(place)).store(Path(place))))


if __name__ == "__main__":
    say_for_ever(Path(sys.argv[1]), sys.argv[2])
