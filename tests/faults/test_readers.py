"""No reader sees a projection half way, whatever is forgotten, rebuilt, moved to quarantine or changed meanwhile."""

import shutil
import threading
from itertools import pairwise
from typing import NamedTuple

import pytest

from mnemolog.domain.store_layout import DATABASE_PARTS
from mnemolog.infra.log.postgres.address import ADDRESS_FILE
from mnemolog.projections.history import states
from mnemolog.projections.quarantine import Quarantine, identity
from tests.children.reading import NEWEST, PLACES, Subject, encoder, read_meanwhile, read_until
from tests.postgres import put_log_in_postgres
from tests.support import WAIT_S, in_thread

pytestmark = pytest.mark.promise("P38", "forgettings")

KEPT = 5
DATABASES = ("views", "threads", "items", "snapshots", "embeddings")


class Said(NamedTuple):
    """A word, where it is in the log, and where the events are with which it was forgotten."""

    word: str
    positions: dict[str, int]
    requested: int | None = None
    erased: int | None = None


def told(subject, word, *, is_secret):
    """Have a word kept in every place; forget it again if it is a secret."""
    positions = subject.tell(word)
    if not is_secret:
        return Said(word, positions)
    certificate = subject.store.forget(positions=positions.values(), reason="a secret").certificate
    return Said(word, positions, certificate.requested.position, certificate.erased.position)


def fits(answer, words, kind, *, at, last_only):
    """Whether an answer is that of a position, with or without what was forgotten until the call ended."""
    there = [said for said in words if said.positions[kind] <= at and not (said.erased and said.erased <= at)]
    steady = [said.word for said in there if not (said.requested and said.requested <= answer.after)]
    if last_only:
        return answer.words in ([said.word for said in there][-1:], steady[-1:])
    return {*steady} <= {*answer.words} <= {said.word for said in there}


def check(place, answers, words):
    """Every answer is that of one position of the log, and holds nothing that was forgotten when the call began."""
    kind, _ = PLACES[place]
    assert len(answers) > 1
    for answer in answers:
        between = range(answer.before, answer.after + 1) if answer.named is None else [answer.named]
        assert any(fits(answer, words, kind, at=at, last_only=place == NEWEST) for at in between), (
            place,
            answer,
            words,
        )
        gone = {said.word for said in words if said.erased and said.erased <= answer.before}
        assert not gone & {*answer.words}, (place, answer)
    named = [answer.named for answer in answers if answer.named is not None]
    assert all(one <= other for one, other in pairwise(named)), (place, named)


@pytest.mark.parametrize("log", ["sqlite", "postgres"])
@pytest.mark.timeout(7200)
def test_every_answer_is_that_of_one_position(folder, processes, fork_server, request, monkeypatch, log, tries):
    """In this process and in another, while other content is forgotten, and projections begin again."""
    monkeypatch.setattr(states, "SNAPSHOT_EVERY", 5)
    theirs = folder
    if log == "postgres":
        put_log_in_postgres(folder, request.getfixturevalue("postgres_url"))
        theirs = folder.with_name("node")
        theirs.mkdir()
        shutil.copy(folder / ADDRESS_FILE, theirs)
    over, done = fork_server.Event(), threading.Event()
    with Subject(folder) as subject:
        words = [told(subject, f"kept{n:06}", is_secret=False) for n in range(KEPT)]
        _, pipe = processes.start(read_meanwhile, str(theirs), over)
        assert pipe.poll(WAIT_S)
        assert pipe.recv() == "reading"
        reading = in_thread(lambda: read_until(done.is_set, subject))
        try:
            for number in range(tries):
                words.append(told(subject, f"secret{number:06}", is_secret=True))
                match number % 4:
                    case 0:
                        subject.store.rebuild("views")
                    case 1:
                        model = encoder(2 - number // 4 % 2)
                        subject.store.models.add(model)
                        subject.store.models.activate(model)
                    case 2:
                        subject.store.rebuild("vectors")
                    case 3:  # As a process does that finds a damaged one.
                        path = subject.store.path / "projections" / f"{DATABASES[number // 4 % len(DATABASES)]}.db"
                        quarantine = Quarantine(subject.store.parts.layout.quarantine)
                        quarantine.add(
                            path, reason="a test", state="damaged", parts=DATABASE_PARTS, judged=identity(path)
                        )
                words.append(told(subject, f"kept{KEPT + number:06}", is_secret=False))
        finally:
            over.set()
            done.set()
        assert pipe.poll(WAIT_S)
        everything = [reading.result(), pipe.recv()]
        assert isinstance(everything[1], dict), everything[1]  # Else how the other process failed.
    for answers in everything:
        for place in PLACES:
            check(place, answers[place], words)
