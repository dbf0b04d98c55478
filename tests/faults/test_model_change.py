"""Two models on one log, in several processes and under fire: each vector where it belongs, one model an answer."""

from itertools import pairwise

import pytest

from mnemolog import MemoryStore
from mnemolog.domain.events import ModelActivated
from tests.children.workers import (
    activate_until_killed,
    build_beside,
    messages,
    record_and_embed,
)
from tests.faults.test_kill import KILLS_PER_STORE, kill_at_random
from tests.support import WAIT_S, HalfEncoder, read_all

pytestmark = pytest.mark.promise("P10")

TURNS_EACH = 150
MEANWHILE = 1_000
RECALLED_MAX = 1_000
"""Turns that one recall returns at most, and so of a session here."""


def fingerprint_of(half):
    """What a store knows this model by."""
    from mnemolog.infra.embedding.encoder import ObjectEncoder
    from mnemolog.projections.vectors.rendering import RECIPE

    return ObjectEncoder(HalfEncoder(half), recipe=RECIPE).fingerprint


def check_all(store, positions, *, model, session=None, of_itself_every=1, why=""):
    """Every turn, of at most a thousand, is found by this model, and so by a vector of its own.

    Every text says "note": its vector has some similarity with that word in its own half of the dimensions, and
    none with a query of the other half. Asked for itself, a turn (or every so many-th) has similarity 1.
    """
    found = store.recall("note", mode="vector", k=1_000, session=session)
    assert found.model == model, why
    assert all(hit.similarity > 0 for hit in found.hits), why
    assert {hit.position for hit in found.hits} == set(positions.values()), why
    for text, position in list(positions.items())[::of_itself_every]:
        (hit,) = store.recall(text, mode="vector", k=1).hits
        assert (hit.position, hit.text) == (position, text), why
        assert hit.similarity == pytest.approx(1.0, abs=1e-5), why


@pytest.mark.timeout(300)
def test_two_processes_that_embed_with_two_models_keep_them_apart(processes, fork_server, folder):
    """Same dimension, one log, both writing at once: every vector in its generation, none missing."""
    MemoryStore.open(folder, model=None).close()
    together = fork_server.Barrier(2)
    pipes = [processes.start(record_and_embed, str(folder), half, TURNS_EACH, together)[1] for half in (0, 1)]
    answers = [messages(pipe) for pipe in pipes]
    assert all(len(sent) == 1 and isinstance(sent[0], dict) for sent in answers), answers
    positions = answers[0][0] | answers[1][0]
    assert len(positions) == 2 * TURNS_EACH
    for half in (0, 1):
        with MemoryStore.open(folder, model=HalfEncoder(half)) as store:
            store.admin.catch_up_vectors()
            check_all(store, positions, model=fingerprint_of(half))
    with MemoryStore.open(folder, model=HalfEncoder(0), models=[HalfEncoder(1)]) as store:
        assert {item.name: (item.state, item.vectors) for item in store.models.list()} == {
            f"half-{half}": ("current", 2 * TURNS_EACH) for half in (0, 1)
        }
        assert store.verify().sound


def said_in(store, name, numbers):
    """Record a turn of each number in a session; return where they are."""
    session = store.start_session(name)
    return {text: session.record("user", text).position for text in (f"note of early{n}" for n in numbers)}


@pytest.mark.timeout(7200)
@pytest.mark.promise("P10", "turns before a build")
def test_while_a_model_is_built_the_other_one_answers_for_everything_that_is_recorded(
    processes, fork_server, folder, tries
):
    """A thousand turns come while another process builds: no answer fails, none is of the new model."""
    with MemoryStore.open(folder, model=HalfEncoder(0), models=[HalfEncoder(1)]) as store:
        late = store.start_session("late")
        before = {
            f"early{start}": said_in(store, f"early{start}", range(start, min(start + RECALLED_MAX, tries)))
            for start in range(0, tries, RECALLED_MAX)
        }
        store.admin.catch_up_vectors()
        meanwhile = {}
        started, go_on = fork_server.Event(), fork_server.Event()
        process, pipe = processes.start(build_beside, str(folder), started, go_on)
        assert started.wait(WAIT_S), "the build did not begin"
        for n in range(MEANWHILE):
            if n == MEANWHILE // 2:
                go_on.set()  # The first half comes before the build has embedded anything, the rest as it goes.
            text = f"note late{n}"
            meanwhile[text] = late.record("user", text).position
            if n % 3:
                continue
            answer = store.recall(text, k=1)
            assert (answer.model, answer.unavailable_legs, answer.legs) == (fingerprint_of(0), {}, ("text", "vector"))
            assert answer.hits[0].position == meanwhile[text]
            assert answer.hits[0].similarity == pytest.approx(1.0, abs=1e-5)
        assert messages(pipe) == [tries], "it builds up to where the log was when it began"
        process.join()
        assert store.models.activate("half-1").encoded_texts == MEANWHILE
        for half in (1, 0):
            assert store.models.activate(f"half-{half}").encoded_texts == 0
            for name, positions in before.items():
                check_all(store, positions, model=fingerprint_of(half), session=name, of_itself_every=10)
            check_all(store, meanwhile, model=fingerprint_of(half), session="late", of_itself_every=10)


@pytest.mark.timeout(7200)
@pytest.mark.promise("P10", "kills within an activation")
def test_a_kill_within_an_activation_leaves_the_old_model_active_or_the_new_one(processes, tmp_path, rng, seed, tries):
    """Never neither: afterwards the log names one, it answers for every turn, and the next activation works."""
    for number in range(tries):
        if number % KILLS_PER_STORE == 0:
            folder = tmp_path / f"store{number}"
            with MemoryStore.open(folder, model=HalfEncoder(0)) as store:
                store.start_session("s").record("user", "note of the beginning")
                store.admin.catch_up_vectors()
                store.models.add(HalfEncoder(1))
                store.models.activate("half-0")
        told = kill_at_random(
            processes, rng, activate_until_killed, str(folder), f"run{number}", near_opening=number % 5 == 0
        )
        why = f"after kill {number}, seed {seed}"
        with MemoryStore.open(folder, model=HalfEncoder(0), models=[HalfEncoder(1)]) as store:
            events = [event for event in read_all(store.parts.log) if isinstance(event.event, ModelActivated)]
            activated = [(event.event.fingerprint, event.position) for event in events]
            assert set(told) <= set(activated), why
            # Each names the other model than the one before: none was doubled, none is half.
            assert all(one != two for (one, _), (two, _) in pairwise(activated)), why
            (active,) = [item for item in store.models.list() if item.active]
            assert (active.fingerprint, active.activated_at) == activated[-1], why
            turns = store.turns("s")[-50:]
            for half in (0, 1):
                store.models.activate(f"half-{half}")
                found = store.recall("note", mode="vector", k=1_000)
                assert found.model == fingerprint_of(half), why
                assert len(found.hits) == len(store.turns("s")), why
                assert all(hit.similarity > 0 for hit in found.hits), why
                for turn in turns:
                    (hit,) = store.recall(turn.text, mode="vector", k=1).hits
                    assert (hit.position, hit.similarity) == (turn.position, pytest.approx(1.0, abs=1e-5)), why
            assert store.verify().findings == (), why
