"""The recall benchmark: measures against their definitions, intervals, shapes of data, a run from end to end."""

import gzip
import itertools
import json
import math
from collections import Counter
from pathlib import Path

import msgspec
import numpy as np
import pytest

from benchmarks import fit_recall
from benchmarks.bulk import SHARES, Bulk
from benchmarks.quality import intervals, metrics
from benchmarks.quality.budget import answer_words, gold_share, packer, shown_in, words_share
from benchmarks.quality.left_out import has_fit
from benchmarks.quality.relevance import Graded, measure
from benchmarks.quality.shapes import Question
from benchmarks.recall_quality import main
from mnemolog.projections.recall import scoring
from mnemolog.projections.recall.question import RANKING
from tests.support import HashEncoder

ITEMS = "abcdef"
RANKINGS = [list(some) for n in (1, 3, 6) for some in itertools.permutations(ITEMS, n)][::7]
EVIDENCE = [frozenset(some) for n in (1, 2, 5) for some in itertools.combinations(ITEMS, n)]


def gain(ranking, evidence, cut):
    """The definition of discounted gain, rank by rank."""
    total = 0.0
    for place in range(min(cut, len(ranking))):
        if ranking[place] in evidence:
            total += 1 / math.log2(place + 2)
    return total


def test_measures_are_what_counting_says():
    """Any evidence makes a hit; the ideal gain is looked for by trying every order, of items a ranking lacks too."""
    for evidence, cut in itertools.product(EVIDENCE[::3], (1, 2, 3, 10)):
        best = max(gain(order, evidence, cut) for order in itertools.permutations(ITEMS))
        for ranking in RANKINGS[::5]:
            found = [item for item in ranking[:cut] if item in evidence]
            assert metrics.hit(ranking, evidence, cut=cut) == (1.0 if found else 0.0)
            assert metrics.evidence_recall(ranking, evidence, cut=cut) == len(found) / len(evidence)
            assert metrics.ndcg(ranking, evidence, cut=cut) == pytest.approx(gain(ranking, evidence, cut) / best)
    found = dict(zip(metrics.METRICS, metrics.scores(list("abcdefghijkl"), frozenset("bgk")), strict=True))
    assert (found["hit@1"], found["hit@5"], found["hit@10"]) == (0.0, 1.0, 1.0)
    assert found["evidence recall@10"] == pytest.approx(2 / 3)


def test_an_interval_repeats_itself_and_is_as_wide_as_the_normal_distribution_says():
    """95 % of the means lie within 1.96 standard errors; without variance there is no width."""
    values = np.random.default_rng(2).random((2_000, 1)) < 0.3
    (interval,) = intervals.intervals(values)
    assert [interval] == intervals.intervals(values) != intervals.intervals(values, seed=2)
    assert interval.mean == pytest.approx(values.mean(), abs=1e-4)
    assert interval.low < interval.mean < interval.high
    error = values.std() / math.sqrt(len(values))
    assert interval.high - interval.low == pytest.approx(2 * 1.96 * error, rel=0.1)
    (still,) = intervals.intervals(np.ones((50, 1)))
    assert (still.low, still.mean, still.high) == (1.0, 1.0, 1.0)


SAID = [
    ("garden", 1, "D1:1", "Ada", "I planted tomatoes behind the shed."),
    ("garden", 1, "D1:2", "Ben", "Mine never ripen."),
    ("garden", 2, "D2:1", "Ada", "The tomatoes behind the shed are red now."),
    ("garden", 2, "D2:2", "Ben", "Then let us cook a sauce on Sunday."),
    ("music", 1, "D1:1", "Cy", "My cello needs a new bow."),
    ("music", 1, "D1:2", "Di", "I planted tomatoes behind the shed."),
]


def written(folder: Path, questions: list[dict]) -> Path:
    folder.mkdir(exist_ok=True)
    names = ("conversation", "session", "turn_id", "speaker", "text")
    turns = [dict(zip(names, turn, strict=True)) | {"session_time": "2023/05/20 (Sat) 02:21"} for turn in SAID]
    for name, rows in (("turns", turns), ("questions", questions)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture
def locomo(tmp_path):
    """Two questions to ask, one adversarial, one without evidence, one with evidence that does not exist."""
    rows = [
        ("garden", "Who planted tomatoes behind the shed?", 1, ["D1:1", "D2:1"], False),
        ("music", "What does the cello need?", 4, ["D1:1", "D9:9"], False),
        ("garden", "Who sold the shed?", 5, ["D1:1"], True),
        ("garden", "Is Ada patient?", 3, [], False),
        ("music", "Who plays the flute?", 4, ["D7:7"], False),
    ]
    names = ("conversation", "question", "category", "evidence", "adversarial")
    return written(tmp_path / "talks", [dict(zip(names, row, strict=True)) for row in rows])


@pytest.fixture
def longmemeval(tmp_path):
    """An official question, one of a session only, an abstention."""
    rows = [
        ("garden", "What is red now?", "knowledge-update", ["D2:1"], [1, 2], False, True),
        ("garden", "What happens on Sunday?", "extra", [], [2], False, False),
        ("music", "What did I bake?", "single-session-user", [], [], True, True),
    ]
    names = ("conversation", "question", "category", "evidence", "evidence_sessions", "abstention", "official")
    return written(
        tmp_path / "haystacks", [dict(zip(names, row, strict=True)) | {"split": "s_haystack"} for row in rows]
    )


@pytest.fixture
def own(tmp_path):
    """A conversation of a user and an assistant, with questions about it."""
    told = {"session": "plan", "scope": "acme/boat", "agent": "sol"}
    turns = [
        told | {"role": "user", "key": "p:1", "text": "The boat needs a new keel."},
        told | {"role": "assistant", "key": "p:2", "text": "A keel of lead weighs two tonnes."},
        told | {"role": "user", "key": "p:3", "text": "Then the crane must lift the boat."},
    ]
    asked = [
        {"question": "What does the boat need?", "scope": "acme/boat", "category": "user-fact", "evidence": ["p:1"]},
        {"question": "How heavy is a keel?", "scope": "acme/boat", "category": "assistant-said", "evidence": ["p:2"]},
        {"question": "What colour is the boat?", "scope": "acme/boat", "category": "unanswerable", "evidence": []},
    ]
    for name, rows in (("boat", turns), ("boat-questions", asked)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path / "boat.jsonl"


def without(**features):
    """The models that are shipped, with other coefficients of some features."""
    shipped = msgspec.to_builtins(scoring.fitted())
    for model in ("with_vectors", "without_vectors"):
        shipped[model]["features"] |= features
    return shipped


def test_relevance_that_is_a_chance_is_calibrated():
    """Of ten hits with relevance 0.7 seven are evidence; one that is always sure is off by what it misses."""
    sevenths = [Graded((0.7,), (number < 7,)) for number in range(10)]
    found = measure(sevenths, [], [])
    assert (found.calibration_error, found.brier) == (0.0, pytest.approx(0.21))
    assert [(part.low, part.hits, part.relevance, part.evidence) for part in found.bins] == [(0.7, 10, 0.7, 0.7)]
    sure = measure([Graded((1.0,), (number < 7,)) for number in range(10)], [], [])
    assert (sure.calibration_error, sure.brier) == (0.3, 0.3)
    assert (found.off_topic, found.near_miss) == (None, None)


def test_relevance_tells_questions_apart_by_the_best_hit():
    """Off-topic ones all lower; of the unanswerable ones half. A threshold keeps and refuses what counting says."""
    own = [Graded((0.9, 0.4), (True, False)), Graded((0.6, 0.5), (False, True))]
    off_topic, near_miss = (
        [Graded((), ()), Graded((0.1,), (False,))],
        [Graded((0.95,), (False,)), Graded((0.2,), (False,))],
    )
    found = measure(own, off_topic, near_miss)
    assert (found.off_topic.mean, found.near_miss.mean, found.right.mean) == (1.0, 0.5, 1.0)
    at = {item.min_relevance: (item.answered, item.off_topic, item.near_miss) for item in found.thresholds}
    assert (at[0.1], at[0.2], at[0.6]) == ((1.0, 0.5, 1.0), (1.0, 0.0, 1.0), (0.5, 0.0, 0.5))
    assert found.best["off-topic"] == [1, 1, 0, 0, 0, 0, 0, 0, 0, 0]


def test_auroc_is_the_share_of_pairs_in_order():
    """A tie counts half."""
    higher, lower = [0.9, 0.5, 0.5], [0.5, 0.1]
    pairs = [(a > b) + (a == b) / 2 for a in higher for b in lower]
    assert metrics.auroc(higher, lower) == pytest.approx(sum(pairs) / len(pairs))
    interval = intervals.auroc_interval(higher * 10, lower * 10)
    assert interval == intervals.auroc_interval(higher * 10, lower * 10)
    assert interval.low < interval.mean < interval.high


def test_a_fit_gives_the_same_file_every_time_with_the_fits_that_have_not_seen_a_source(
    own, locomo, longmemeval, tmp_path, capsys
):
    """And says how good each is on the source that it has not seen."""
    sets = [str(path) for path in (own, locomo, longmemeval)]
    files = [tmp_path / name for name in ("first.json", "second.json")]
    for file in files:
        fit_recall.main([*sets, "--store", str(tmp_path / "fits"), "--write", str(file)], encoder=HashEncoder())
    assert files[0].read_bytes() == files[1].read_bytes()
    fitted = json.loads(files[0].read_text())
    assert fitted["ranking"] == RANKING
    assert fitted["with_vectors"]["features"].keys() == scoring.FEATURES.keys()
    assert set(fitted["left_out"]) == {"ours", "talks", "haystacks"}
    assert fitted["without_the_source"]["boat"]["questions"] == 2
    assert has_fit(files[0], "talks")


def test_a_run_measures_every_set_and_writes_a_page_of_all(own, locomo, longmemeval, tmp_path, capsys):
    """From files to JSON, page and pictures; the words of other conversations are never found."""
    page, out, weights = tmp_path / "page.md", tmp_path / "out.json", tmp_path / "weights.json"
    weights.write_text(
        json.dumps({"left_out": {"ours": without(meaning=0.5), "talks": without(), "haystacks": without()}})
    )
    options = ["--store", tmp_path / "stores", "--json", out, "--page", page, "--weights-left-out", weights]
    arguments = [str(word) for word in (own, locomo, longmemeval, *options, "--ablation")]
    encoder = HashEncoder()
    main(arguments, encoder=encoder)
    boat, talks, haystacks = json.loads(out.read_text())["datasets"]

    first, shipped, *others = talks["settings"]
    assert (first["name"], shipped["name"]) == ("left out", "shipped")
    assert {"text only", "vector only"} <= {setting["name"] for setting in others}
    turn, session = (first["levels"][level]["overall"] for level in ("turn", "session"))
    assert (turn["questions"], session["questions"]) == (2, 2)
    assert turn["metrics"]["evidence recall@10"] == {"mean": 1.0, "low": 1.0, "high": 1.0}
    assert turn["metrics"]["hit@1"]["mean"] == 1.0
    assert set(first["levels"]["turn"]["categories"]) == {"multi-hop", "single-hop"}
    assert shipped["differences"] == {}
    assert others[0]["differences"]["hit@10"] == {"mean": 0.0, "low": 0.0, "high": 0.0}
    assert others[0]["levels"].keys() == {"turn"}
    assert first["shallow"] == 0
    assert talks["corpus_cost"]["texts"] == talks["encoded_now"] > 0
    assert talks["relevance"]["off_topic_questions"] == 3
    assert boat["relevance"]["near_miss_questions"] == 1

    found = haystacks["settings"][0]["levels"]
    assert (found["turn"]["overall"]["questions"], found["session"]["overall"]["questions"]) == (1, 2)
    assert found["session"]["groups"]["official"]["questions"] == 1

    text = page.read_text()
    by_leg = text.split("### By leg")[1].split("##")[0]
    assert by_leg.count("| boat, ") == by_leg.count("| talks, ") == 3
    assert "1 adversarial" in text
    assert str(tmp_path) not in text

    embedded = encoder.texts_encoded
    main([word for word in arguments if word not in ("--ablation", "--page", str(page))], encoder=encoder)
    own_questions, off_topic, warm_ups = 3 + 3 + 3, 3 + 3 + 4, 3
    assert encoder.texts_encoded - embedded == own_questions + off_topic + warm_ups, "the corpora are there"
    kept = json.loads(out.read_text())["datasets"][1]
    assert (kept["encoded_now"], kept["corpus_cost"]) == (0, talks["corpus_cost"])
    assert [item["levels"] for item in kept["settings"]] == [item["levels"] for item in talks["settings"][:2]]


LONG = "We talked about the weather. " * 60 + "The ferry to Lisbon leaves at nine. " + "Then it rained. " * 90


def asked(*keys):
    return Question(
        id="1",
        conversation="acme",
        text="When does the ferry leave?",
        category="all",
        turns=frozenset(keys),
        sessions=frozenset(),
        answer="The user says that it leaves at nine.",
    )


def test_the_shares_are_those_of_the_evidence_that_is_shown():
    """A part of a turn is gold enough. Words count where the evidence shows them only."""
    assert (gold_share({1: "all", 3: "a part"}, [1, 2, 3, 4]), gold_share({}, [1])) == (0.5, 0.0)
    words = answer_words(LONG, "When does the ferry leave?", "The user says nine.")
    assert {"ferri", "lisbon", "nine"} <= words & answer_words(LONG, "When does the ferry leave?", "")
    assert not {"user", "say", "the"} & words
    words = {1: frozenset(("ferri", "nine")), 2: frozenset(("lisbon", "rain"))}
    assert words_share({1: "Nine ferries", 2: "Lisbon"}, words) == 0.75
    assert words_share({3: "Nine ferries in Lisbon in the rain"}, words) == words_share({}, {}) == 0.0


def test_a_context_of_a_store_is_measured(bare):
    """Of a long turn, the passage with the answer fits into few tokens; one without it holds no word of the answer."""
    session = bare.session("trip", scope="acme")
    session.record("assistant", LONG, key="a")
    session.record("user", "Nothing of it.", key="b")
    bare.session("other", scope="other").record("user", LONG, key="a")
    pack = packer()
    packed = pack(bare, asked("a"), 300)
    assert packed.gold == 1.0
    assert packed.words > 0.5
    assert 0.3 < packed.used <= 1.0
    assert pack(bare, asked("a", "b"), 300).gold == 0.5
    assert pack(bare, asked("a"), 20)[:2] == (0.0, 0.0)
    (shown,) = shown_in(bare.context("ferry", 300, scope="acme")).values()
    assert "The ferry to Lisbon leaves at nine." in shown


WORDS = ["tea", "train", "ticket", "museum", "lisbon", "porto", "table", "dinner", "friday", "monday", "invoice", "dog"]


def message(conversation, number):
    words = [WORDS[(conversation * 25 + number) * step % len(WORDS)] for step in (1, 3, 7)]
    return {
        "conversation": f"room{conversation}",
        "turn_id": f"m{number}",
        "time": f"2015-03-{1 + number:02}T10:00:{conversation % 60:02}Z",
        "speaker": f"user{number % 5}",
        "text": f"{' '.join(words)} number{conversation * 25 + number}",
    }


def test_the_data_has_its_shares_at_every_size_and_nothing_twice(tmp_path):
    """Messages that come again are other turns of other sessions; no question is in the store."""
    with gzip.open(tmp_path / "rooms.jsonl.gz", "wt", encoding="utf-8") as lines:
        lines.writelines(json.dumps(message(room, number)) + "\n" for room in range(90) for number in range(25))
    bulk = Bulk([tmp_path / "rooms.jsonl.gz"], questions=10)
    for count in (700, len(bulk.messages)):
        held = Counter(scope.partition("/")[0] for _, scope, _ in bulk.turns(count))
        for name, (percent, _) in SHARES.items():
            assert held[name] / count == pytest.approx(percent / 100, abs=0.03)
    count = 2 * len(bulk.messages)
    turns = [turn for _, _, turn in bulk.turns(count)]
    assert len({(turn.session, turn.key) for turn in turns}) == len({turn.text for turn in turns}) == count
    assert turns[:1_000] == [turn for part in (bulk.turns(400), bulk.turns(1_000, after=400)) for _, _, turn in part]
    assert not set(bulk.questions) & {turn.text for turn in turns[: len(bulk.messages)]}
