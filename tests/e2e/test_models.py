"""Changing the model of a store: beside the others, by one event, and back."""

import shutil

import pytest

import mnemolog
from mnemolog import MemoryStore
from mnemolog.adapters.support.store_access import log_of
from mnemolog.domain.choices import MODELS_STREAM
from mnemolog.domain.events import ModelActivated
from mnemolog.infra.runtime import files
from mnemolog.projections.maintenance import vectors as maintenance
from mnemolog.projections.vectors.folders import IndexerLock
from mnemolog.projections.vectors.projection import VectorProjection
from tests.support import HalfEncoder, in_thread

TURNS = 30


class Unusable:
    """A model that must not be asked."""

    name, fingerprint, dimension = "half-0", "half/0", 64

    def encode(self, texts):
        raise AssertionError(f"asked for {len(texts)} texts")


@pytest.fixture
def both():
    return HalfEncoder(0), HalfEncoder(1)


@pytest.fixture
def store(folder, both, clock):
    """A store of the first model, that can answer with the second, with a few turns that the first has embedded."""
    with MemoryStore.open(folder, model=both[0], models=[both[1]], clock=clock) as store:
        session = store.start_session("s")
        for n in range(TURNS):
            session.record("user", f"note number{n}")
        store.admin.catch_up_vectors()
        yield store


def model_of(store):
    """What the vectors of the store answer with, after having shown that each of its turns answers best to itself."""
    last = None
    for turn in store.turns("s"):
        answer = store.recall(turn.text, mode="vector", k=1_000)
        assert answer.hits[0].position == turn.position
        assert answer.hits[0].similarity == pytest.approx(1.0, abs=1e-5)
        assert len(answer.hits) == len(store.turns("s"))
        assert all(hit.similarity > 0 for hit in answer.hits)  # Every text says "note": no vector of the other half.
        assert last in (None, answer.model)
        last = answer.model
    return last


def named(store):
    return {item.name: item for item in store.models.list()}


def head(store):
    return store.head().position


def test_a_model_is_built_beside_the_one_that_answers_and_answers_once_it_is_activated(store, both):
    """Nothing changes for readers before the event; what it takes is told before."""
    first = model_of(store)
    planned = store.models.add(both[1], dry_run=True)
    assert (planned.expected_turns, planned.encoded_texts, planned.dry_run) == (TURNS, TURNS, True)
    assert both[1].calls == []
    report = store.models.add(both[1])
    assert (report.built_turns, report.encoded_texts, report.complete) == (TURNS, TURNS, True)
    assert model_of(store) == first
    before = head(store)
    activated = store.models.activate("half-1")
    assert (activated.appended, activated.previous, activated.position) == (True, None, before + 1)
    assert (activated.encoded_texts, activated.model) == (0, "half-1")
    assert model_of(store) == activated.fingerprint != first
    found = named(store)
    assert [item.active for item in (found["half-0"], found["half-1"])] == [False, True]
    assert found["half-1"].activated_at == activated.position
    assert found["half-0"].fingerprint == first
    assert found["half-0"].vectors == found["half-1"].vectors == TURNS
    event = list(store.events(after=before))[-1]
    assert (event.stream, event.event.fingerprint, event.event.dimension) == (MODELS_STREAM, activated.fingerprint, 64)
    assert store.verify().sound


def test_a_recall_after_activation_does_not_lose_what_was_recorded_around_it(store, both):
    """Turns before, between and after are all found by the model that answers then.

    What was recorded while vectors were built is embedded before the event: who activates pays, not the readers.
    """
    store.models.add(both[1])
    session = store.session("s")
    for n in range(100):
        session.record("user", f"note from between {n}")
    assert store.models.activate(both[1]).encoded_texts == 100
    assert store.recall("note", mode="vector").vectors_cover == head(store)
    assert named(store)["half-1"].behind_events == 1  # The event itself.
    session.record("user", "note from after")
    model_of(store)
    assert store.recall("note from after", mode="vector").vectors_cover == head(store)


def test_going_back_builds_nothing_and_asks_no_model(store, both):
    """The old vectors are where they were, in this handle and in one that is opened now."""
    first = model_of(store)
    store.models.add(both[1])
    store.models.activate(both[1])
    calls = len(both[0].calls)
    back = store.models.activate(both[0])
    assert (back.fingerprint, back.encoded_texts, len(both[0].calls)) == (first, 0, calls)
    assert model_of(store) == first
    store.models.activate(both[1])
    with MemoryStore.open(store.path, model=Unusable(), models=[both[1]]) as other:
        assert other.models.activate("half-0").encoded_texts == 0
    assert model_of(store) == first


def test_an_open_handle_switches_when_another_one_activates(store, folder, both):
    """Without opening anything again, at the event; `vectors()` and a prefetch see it too."""
    with MemoryStore.open(folder, model=HalfEncoder(0), models=[HalfEncoder(1)]) as other:
        first = model_of(other)
        session = other.session("s")
        session.prefetch("note")
        store.models.add(both[1])
        second = store.models.activate(both[1]).fingerprint
        assert model_of(other) == second != first
        assert other.parts.projections.vectors().fingerprint == second
        taken = session.prefetch_result(wait_s=60)
        assert taken.reason == "other-model"
        store.models.activate(both[0])
        assert model_of(other) == first


def test_an_active_model_that_this_process_does_not_have_is_never_answered_for(store, folder, both):
    """Text answers and the reason is given; asked for vectors alone, it is an error that names both."""
    store.models.add(both[1])
    second = store.models.activate(both[1]).fingerprint
    with MemoryStore.open(folder, model=HalfEncoder(0)) as other:
        answer = other.recall("note number7")
        assert (answer.legs, answer.vectors_cover, answer.model) == (("text",), None, None)
        assert answer.hits[0].text == "note number7"
        assert second[:8] in answer.unavailable_legs["vector"]
        for call in (lambda: other.recall("note", mode="vector"), other.models.load, other.admin.catch_up_vectors):
            with pytest.raises(mnemolog.errors.ModelMismatch) as caught:
                call()
            assert caught.value.built_with == f"half-1 ({second[:8]})"
            assert "half-0 (" in caught.value.asked_with
            assert caught.value.hint
        # Given the model by whatever call, the same handle answers with it.
        other.models.add(HalfEncoder(1))
        assert model_of(other) == second
    with MemoryStore.open(folder, model=None, models=[both[1]]) as other:  # Text only, also with further models.
        assert other.recall("number7").legs == ("text",)
        with pytest.raises(mnemolog.ModelUnavailable):
            other.recall("number7", mode="vector")


def test_activating_what_is_active_appends_nothing(store, both):
    """By name, by object, by fingerprint, from two threads at once."""
    store.models.add(both[1])
    first = store.models.activate(both[1])
    before = head(store)
    for again in ("half-1", both[1], first.fingerprint, first.fingerprint[:8]):
        activated = store.models.activate(again)
        assert (activated.appended, activated.position) == (False, first.position)
    assert head(store) == before
    outcomes = [in_thread(lambda: store.models.activate(both[0]).appended) for _ in range(4)]
    assert sorted(outcome.result() for outcome in outcomes) == [False, False, False, True]
    assert head(store) == before + 1


def test_refusals_say_what_to_do_and_change_nothing(store, both):
    """A model without vectors, unknown names and fingerprints, the active one, and the store's own before any."""
    before = head(store)
    own = store.models.list()[0]
    for call, said in (
        (lambda: store.models.activate(both[1]), "add it first"),
        (lambda: store.models.activate("half-1"), "add it first"),
        (lambda: store.models.activate("0123456789abcdef"), "no model with that name"),
        (lambda: store.models.drop("half-1"), "no model with that name"),
        (lambda: store.models.drop("half-0"), "this store uses it"),
        (lambda: store.models.drop(own.fingerprint[:8]), "this store uses it"),
    ):
        with pytest.raises(mnemolog.errors.ModelRefused, match=said) as caught:
            call()
        assert caught.value.hint
    with pytest.raises(mnemolog.ModelUnavailable):
        store.models.activate("no/such-model")
    store.models.add(both[1])
    store.models.activate(both[1])
    with pytest.raises(mnemolog.errors.ModelRefused, match="is active"):
        store.models.drop("half-1")
    assert head(store) == before + 1
    assert {item.vectors for item in store.models.list()} == {TURNS}


def test_dropping_removes_the_vectors_and_the_embeddings(folder, both, monkeypatch):
    """The dry run says the same and removes nothing; building it again embeds every text."""
    with MemoryStore.open(folder, model=both[0], models=[both[1]], background=False) as store:
        session = store.start_session("s")
        for n in range(TURNS):
            session.record("user", f"note number{n}")
        store.admin.catch_up_vectors()
        drop_and_build_again(store, both, monkeypatch)


def drop_and_build_again(store, both, monkeypatch):
    monkeypatch.setattr("mnemolog.projections.sql.embeddings.DELETED_TOGETHER_MAX", 7)
    store.models.add(both[1])
    second = store.models.activate(both[1]).fingerprint
    for n in range(20):
        store.record("s", "user", f"note later{n}")
    model_of(store)
    store.models.activate(both[0])
    planned = store.models.drop("half-1", dry_run=True)
    assert (len(planned.generations), planned.vectors, planned.embeddings) == (1, TURNS, 20)
    assert named(store)["half-1"].vectors == TURNS
    dropped = store.models.drop(second[:8])
    assert dropped.dry_run is False
    assert (dropped.generations, dropped.embeddings) == (planned.generations, planned.embeddings)
    gone = named(store)["half-1"]
    assert (gone.state, gone.vectors, gone.active, gone.fingerprint) == ("missing", 0, False, second)
    model_of(store)
    with pytest.raises(mnemolog.errors.ModelRefused, match="add it first"):
        store.models.activate(both[1])
    assert store.models.add(both[1]).encoded_texts == TURNS + 20
    store.models.activate(both[1])
    assert model_of(store) == second


@pytest.mark.log_file
def test_a_model_is_neither_added_nor_dropped_while_another_process_writes_its_vectors(store, both, monkeypatch):
    """It never pulls a folder from under an indexer: whoever adds or drops takes the lock that indexers take."""
    monkeypatch.setattr(maintenance, "INDEXER_WAIT_S", 0.05)
    for waiting in (IndexerLock.held.__wrapped__, VectorProjection._write):
        monkeypatch.setitem(waiting.__kwdefaults__, "wait_s", 0.05)
    store.models.add(both[1])
    second = named(store)["half-1"].fingerprint
    store.session("trip").record("user", "one more")
    for change in (lambda: store.models.drop("half-1"), lambda: store.models.add(both[1])):
        with IndexerLock(store.parts.layout.vectors, second).held(), pytest.raises(mnemolog.errors.IndexerBusy):
            change()
        assert named(store)["half-1"].vectors == TURNS
    store.models.add(both[1])
    assert [path.name for path in store.path.glob(".*")] == []
    store.models.drop("half-1")


def test_an_open_store_rebuilds_what_another_process_dropped(store, folder):
    """A handle that answers from memory does not take that for vectors on disk."""
    with MemoryStore.open(folder, model=HalfEncoder(1)) as other:
        other.admin.catch_up_vectors()
        second = model_of(other)
        for again in (lambda: other.models.add(HalfEncoder(1)), lambda: other.models.activate("half-1")):
            assert store.models.drop("half-1").vectors == TURNS
            assert model_of(other) == second
            again()
            assert named(other)["half-1"].vectors == TURNS
    assert model_of(store) == second


def test_a_drop_that_failed_is_still_listed_and_can_be_repeated(store, both, monkeypatch):
    """What went wrong is an error of ours; the model that answers is not touched by it."""
    first = model_of(store)
    store.models.add(both[1])
    store.models.activate(both[0])
    with monkeypatch.context() as patched:
        patched.setattr(files, "remove_folder", lambda _: (_ for _ in ()).throw(PermissionError(13, "not yours")))
        with pytest.raises(mnemolog.errors.ProjectionUnreadable, match="not yours"):
            store.models.drop("half-1")
    assert named(store)["half-1"].vectors == TURNS
    assert store.models.drop("half-1").vectors == TURNS
    assert "half-1" not in named(store)
    assert model_of(store) == first


def test_the_active_model_survives_the_loss_of_every_projection(store, folder, both):
    """The choice is in the log: without `projections/` the same model answers, from nothing but the turns."""
    store.models.add(both[1])
    second = store.models.activate(both[1]).fingerprint
    store.close()
    shutil.rmtree(folder / "projections")
    with MemoryStore.open(folder, model=HalfEncoder(0), models=[HalfEncoder(1)]) as again:
        (missing,) = again.models.list()
        assert (missing.name, missing.active, missing.state, missing.vectors) == ("half-1", True, "missing", 0)
        assert model_of(again) == second
        again.rebuild("all")
        assert model_of(again) == second


def test_an_empty_store_takes_an_activation(folder, both):
    """There is nothing to build, so nothing is missing."""
    with MemoryStore.open(folder, model=both[0]) as store:
        assert store.models.list() == []
        activated = store.models.activate(both[1])
        assert (activated.position, activated.encoded_texts) == (1, 0)
        store.start_session("s").record("user", "note number1")
        assert model_of(store) == activated.fingerprint


def test_activations_outside_their_stream_and_unknown_models_in_it_do_no_harm(store, folder):
    """An event of a model that nobody has silences the vectors, not the store."""
    wild = ModelActivated(fingerprint="ab" * 32, model="../no such place", dimension=3, retain_every_n_turns=99)
    log_of(store).appends.transact(lambda tx: [tx.append("elsewhere", wild).position])
    first = model_of(store)
    log_of(store).appends.transact(lambda tx: [tx.append(MODELS_STREAM, wild).position])
    assert store.recall("number7").legs == ("text",)
    assert store.verify().sound
    assert store.status().head == store.replay().position == head(store)
    with pytest.raises(mnemolog.ModelUnavailable):
        store.models.activate("ab" * 4)
    assert store.models.activate("half-0").appended
    assert model_of(store) == first
