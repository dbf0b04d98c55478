"""What a recall promises whatever is asked and whatever fails: an answer, in one order, with its reasons."""

import itertools
import json
import math
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mnemolog import InvalidInput, MemoryStore, ModelUnavailable, Weights
from mnemolog.domain.errors import ModelError, ProjectionError
from mnemolog.projections.recall import service
from mnemolog.projections.recall.scoring import fitted
from mnemolog.projections.vectors import projection as vectors
from tests.support import HashEncoder, as_stored, projections_of

WORDS = ("tea", "dog", "boat", "sun", "map")
EVERYTHING = 1_000
MODES = ("hybrid", "vector", "text")

many = settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))


# Against a program that knows the formulas of projections/recall/scoring.py, and nothing of indexes.


def naive(turns, visible, query, k):
    """The answer to a query from the `visible` positions, where words are counted in all `turns`."""
    terms = list(dict.fromkeys(query.split()))
    known = [term for term in terms if any(term in text.split() for _, text, _ in turns)]
    place, counted = {}, Counter()
    for position, _, session in turns:
        place[position] = session, counted[session]
        counted[session] += 1
    seen = {place[p]: (p, text) for p, text, _ in turns if p in visible}

    def rarity(term):
        having = sum(term in text.split() for _, text, _ in turns)
        return math.log(1 + (len(turns) - having + 0.5) / (having + 0.5))

    def own(at, term):
        if at not in seen:
            return 0.0
        text = seen[at][1]
        frequency = text.split().count(term)
        return frequency * 2.2 / (frequency + 1.2 * (0.25 + 0.75 * (len(text) + 2) / 400))

    def best(at, term):
        session, n = at
        lent = {0: 1.0, -2: 0.5, -1: 0.7, 1: 0.5, 2: 0.4}
        return max(share * own((session, n + away), term) for away, share in lent.items())

    asked = sum(rarity(term) for term in terms)
    encoder = HashEncoder(dimension=32)
    wanted = encoder.encode([query])[0].astype(np.float64)
    near = {
        at: round(float(as_stored(encoder.encode([said]))[0].astype(np.float64) @ wanted), 6)
        for at, (_, said) in seen.items()
    }
    model = fitted().with_vectors
    worth = {}
    for (session, n), (position, text) in seen.items():
        at = session, n
        here = sum(rarity(term) * own(at, term) for term in known) / asked
        features = {
            "words_present": sum(rarity(term) for term in known if term in text.split()) / asked,
            "words": here,
            "words_near": sum(rarity(term) * best(at, term) for term in known) / asked - here,
            "meaning": near[at],
            "meaning_near": max(near[session, n + away] for away in range(-2, 3) if (session, n + away) in near),
        }
        scored = model.offset + sum(model.features[name] * value for name, value in features.items())
        worth[position] = round(scored, 9)
    return sorted(worth, key=lambda p: (-worth[p], p))[:k]


EACH = {"min_relevance": 0, "weights": Weights(distinct=False), "asked": "keep"}
"""Every turn is a hit of its own."""
TURNS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=7).map(lambda words: " ".join(sorted(words)))
STEPS = st.lists(st.one_of(TURNS, st.sampled_from(["<rewind", "<branch", "<other"])), min_size=1, max_size=25)


@many
@given(STEPS, st.lists(st.sampled_from(WORDS), min_size=1, max_size=3, unique=True).map(" ".join), st.data())
def test_an_answer_is_the_one_a_naive_program_gives(tmp_path_factory, steps, query, data):
    """After rewinds, on a branch, store-wide, and as of any offset: the same turns, ties by position."""
    folder = tmp_path_factory.mktemp("naive") / "memory"
    with MemoryStore.open(folder, model=HashEncoder(dimension=32), background=False, synchronous="NORMAL") as store:
        at = store.start_session("s0")
        store.start_session("other")
        turns, visible = [], []
        past = {store.head().position: ([], {"s0": []}, at)}
        for step in steps:
            if step == "<rewind":
                at.rewind(turns=1)
                visible = visible[:-1]
            elif step == "<branch":
                at = at.branch()
            elif step == "<other":
                turns.append((store.record("other", "user", "dog dog sun").position, "dog dog sun", "other"))
            else:
                turn = (at.record("user", step).position, step, at.id)
                turns, visible = [*turns, turn], [*visible, turn]
            past[store.head().position] = (list(turns), {at.id: list(visible)}, at)
        if not turns:
            return
        for position in {store.head().position, data.draw(st.sampled_from(sorted(past)))}:
            turns, sessions, at = past[position]
            if not turns:
                continue
            found = [hit.position for hit in store.recall(query, k=EVERYTHING, as_of=position, **EACH).hits]
            assert found == naive(turns, {turn[0] for turn in turns}, query, EVERYTHING)
            found = [hit.position for hit in at.recall(query, k=4, as_of=position, **EACH).hits]
            assert found == naive(turns, {turn[0] for turn in sessions[at.id]}, query, 4)


ASK = """
import json, sys
from mnemolog import MemoryStore
from tests.support import HashEncoder
with MemoryStore.open(sys.argv[1], model=HashEncoder(), background=False) as store:
    answers = [store.recall("tea number3", k=50), store.session("s").recall("tea number3", k=3, as_of=int(sys.argv[2]))]
print(json.dumps([[hit.position for hit in answer.hits] for answer in answers]))
"""


def test_another_process_answers_alike_right_after_a_turn_was_recorded(store, folder):
    """And as of an offset before that."""
    session = store.start_session("s")
    for n in range(9):
        session.record("user", f"tea number{n}")
    head = store.head().position
    session.rewind(turns=2)
    session.record("user", "tea number3 again")
    asked = subprocess.run(
        [sys.executable, "-c", ASK, str(folder), str(head)], check=True, capture_output=True, text=True, cwd="."
    )
    answers = [store.recall("tea number3", k=50), session.recall("tea number3", k=3, as_of=head)]
    assert json.loads(asked.stdout) == [[hit.position for hit in answer.hits] for answer in answers]
    assert len(answers[0].hits) == 10


# Whatever is typed.


@pytest.fixture(scope="module")
def spoken(tmp_path_factory):
    """A store with turns in several languages, later ones among them."""
    with MemoryStore.open(tmp_path_factory.mktemp("odd") / "memory", model=HashEncoder(dimension=16)) as store:
        session = store.start_session("s")
        for text in ("tea", "お茶を飲みます", "чай и мёд", "شاي", "🍵", "C++ a_b NEAR", "İstanbul ﬁsh", '"quoted"'):
            session.record("user", text)
        yield store


def ask_in_every_way(store, query):
    answers = [store.recall(query, mode=mode, as_of=as_of, min_relevance=0) for mode in MODES for as_of in (None, 6)]
    for answer in answers:
        assert answer.unavailable_legs == {}
        assert answer.hits or "vector" not in answer.legs
    return answers


QUERIES = [
    *('"', "*", "NEAR(a b)", "NEAR(", "-a", "a AND", "OR", "NOT", "^a", "col:x", "{a b}: c", "a + b", "'; DROP--"),
    *(
        "()",
        "\\",
        "%_",
        "?!...",
        "___",
        "😀",
        "👩\u200d👩\u200d👧",
        "お茶",
        "شاي",
        "чай",
        "İ",
        "ß",
        "ﬁ",
        "e\u0301",
        "\u200b",
    ),
    *("a\x00b", "\x00", "\ud800", "tea \udfff tea", "\x1b[0m", "x" * 10_000, "word " * 2_000),
    "".join(map(chr, range(0x400, 0x4FF))),
    " ".join(f"w{n}" for n in range(1_500)),
]


def test_any_query_is_answered(spoken):
    """No syntax, no encoding and no length of it is an error, now and as of before."""
    for query in QUERIES:
        ask_in_every_way(spoken, query)
        spoken.recall(query, receipt=True)
    assert spoken.audit.receipts(limit=EVERYTHING).sound


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet=st.characters(), max_size=60))
def test_any_text_is_answered_or_refused_as_empty(spoken, query):
    """Lone surrogates and NUL included."""
    if not query.strip():
        with pytest.raises(InvalidInput, match="empty"):
            spoken.recall(query)
    else:
        ask_in_every_way(spoken, query)


@pytest.mark.parametrize("query", ["", " ", "\n\t", "\u3000"])
def test_an_empty_query_is_refused(spoken, query):
    """In every mode, by the store and by a session."""
    for face, mode in itertools.product((spoken, spoken.session("s")), MODES):
        with pytest.raises(InvalidInput, match="query: empty"):
            face.recall(query, mode=mode)


# Whatever fails.


class Missing:
    """A model whose library is not there."""

    name, fingerprint, dimension = "missing", "missing/1", 8

    def encode(self, texts):
        raise ImportError("no such library")


class OutOfMemory(Missing):
    def encode(self, texts):
        raise MemoryError


class Broken(Missing):
    def encode(self, texts):
        raise RuntimeError("the device does not answer")


@pytest.mark.filterwarnings("ignore::mnemolog.errors.ModelWarning")
@pytest.mark.parametrize("model", [None, Missing(), OutOfMemory(), Broken(), "no-such-model-anywhere"])
def test_text_answers_where_the_model_does_not(folder, model):
    """With the reason in the answer; who asks for vectors alone is told by an error of ours."""
    with MemoryStore.open(folder, model=model, background=False) as store:
        session = store.start_session("s")
        session.record("user", "tea")
        for face in (store, session):
            answer = face.recall("tea")
            assert [hit.text for hit in answer.hits] == ["tea"]
            assert (answer.legs, answer.vectors_cover, answer.model) == (("text",), None, None)
            assert ("vector" in answer.unavailable_legs) == (model is not None)
            with pytest.raises(ModelUnavailable if model is None else ModelError):
                face.recall("tea", mode="vector")


@pytest.mark.parametrize("failure", [MemoryError(), RuntimeError("index: allocation failed"), OSError(5, "I/O error")])
@pytest.mark.parametrize("as_of", [None, 2])
def test_text_answers_where_the_search_of_vectors_fails(store, monkeypatch, failure, as_of, request):
    """Nothing of another library comes through; in this process the error has its cause, for who reads a traceback."""
    store.start_session("s").record("user", "tea")
    store.recall("tea")

    def fail(*_, **__):
        raise failure

    monkeypatch.setattr(vectors, "nearest", fail)
    answer = store.recall("tea", as_of=as_of)
    assert (answer.legs, len(answer.hits)) == (("text",), 1)
    assert type(failure).__name__ in answer.unavailable_legs["vector"]
    with pytest.raises(ProjectionError, match=type(failure).__name__) as caught:
        store.recall("tea", mode="vector", as_of=as_of)
    assert caught.value.__cause__ is failure or request.config.option.through == "http"
    monkeypatch.undo()
    assert store.recall("tea").legs == ("text", "vector")


def test_equal_turns_are_in_the_order_of_the_log(store):
    """In every leg, in every mode, over a page's end, and as of an earlier offset."""
    sessions = [store.start_session(f"s{n}") for n in range(3)]
    turns = [sessions[n % 3].record("user", "tea") for n in range(30)]
    positions = [turn.position for turn in turns]
    for mode in MODES:
        assert [hit.position for hit in store.recall("tea", k=100, mode=mode, **EACH).hits] == positions
        first = store.recall("tea", k=11, mode=mode, **EACH)
        rest = store.recall("tea", k=100, mode=mode, **EACH, after=first.next)
        assert [hit.position for hit in (*first.hits, *rest.hits)] == positions
        as_of = store.recall("tea", k=100, mode=mode, **EACH, as_of=positions[19])
        assert [hit.position for hit in as_of.hits] == positions[:20]


@pytest.mark.parametrize("mode", MODES)
def test_an_answer_is_of_one_offset_while_others_record(store, monkeypatch, mode):
    """Turns that are recorded and read by the views before, between and after a recall's reads play all or no part."""
    session, others = store.start_session("s"), store.start_session("others")
    for n in range(5):
        session.record("user", f"tea number{n}", speaker="Ada")
    honest = {name: getattr(service, name) for name in ("from_views", "with_neighbours", "hits_of")}

    def while_others_record(name):
        def read(*asked, **how):
            others.record("user", "tea tea", speaker="Tea")
            projections_of(store).current_views()
            found = honest[name](*asked, **how)
            others.record("user", "tea tea tea")
            projections_of(store).current_views()
            return found

        return read

    for name in honest:
        monkeypatch.setattr(service, name, while_others_record(name))
    answer = store.recall("tea Ada", k=100, mode=mode, context_turns=2)
    monkeypatch.undo()
    assert all(turn.position <= answer.head for hit in answer.hits for turn in (hit, *hit.before, *hit.after))
    assert answer.hits == store.recall("tea Ada", k=100, mode=mode, context_turns=2, as_of=answer.head).hits
    assert answer.as_of is None
    assert answer.head < store.head().position
