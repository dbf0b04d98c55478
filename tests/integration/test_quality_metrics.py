"""The recall benchmark: measures against their definitions, intervals, shapes of data, a run from end to end."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest

import mnemolog
from benchmarks.quality import ablation
from benchmarks.quality.plot import draw
from benchmarks.quality.shapes import read_corpus, shape_of
from benchmarks.recall_quality import command_line, main
from mnemolog.evaluation import bootstrap, metrics
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


@pytest.mark.parametrize("cut", [1, 2, 3, 10])
def test_ndcg_is_the_gain_over_the_best_gain_of_any_order_of_the_whole_corpus(cut):
    """The ideal is looked for by trying every order of every item, those a ranking lacks included."""
    for evidence in EVIDENCE[::3]:
        best = max(gain(order, evidence, cut) for order in itertools.permutations(ITEMS))
        for ranking in RANKINGS[::5]:
            assert metrics.ndcg(ranking, evidence, cut=cut) == pytest.approx(gain(ranking, evidence, cut) / best)


def test_ndcg_holds_what_was_not_found_against_a_ranking():
    """With the ideal over what was retrieved only, this ranking would be perfect."""
    assert metrics.ndcg(["a"], frozenset("abc")) == pytest.approx(1 / (1 + 1 / math.log2(3) + 1 / 2))
    assert metrics.ndcg(["a", "b", "c"], frozenset("abc")) == 1.0


def test_hits_and_evidence_recall_are_what_counting_says():
    """Any evidence makes a hit; recall is the share of all evidence."""
    for ranking, evidence, cut in itertools.product(RANKINGS[::3], EVIDENCE[::3], (1, 5, 10)):
        found = [item for item in ranking[:cut] if item in evidence]
        assert metrics.hit(ranking, evidence, cut=cut) == (1.0 if found else 0.0)
        assert metrics.evidence_recall(ranking, evidence, cut=cut) == len(found) / len(evidence)


def test_scores_are_in_the_order_of_their_names():
    """Twelve items, evidence on ranks 2, 7 and 11."""
    found = dict(zip(metrics.METRICS, metrics.scores(list("abcdefghijkl"), frozenset("bgk")), strict=True))
    assert (found["hit@1"], found["hit@5"], found["hit@10"]) == (0.0, 1.0, 1.0)
    assert found["evidence recall@10"] == pytest.approx(2 / 3)
    ideal = 1 + 1 / math.log2(3) + 1 / 2
    assert found["NDCG@10"] == pytest.approx((1 / math.log2(3) + 1 / math.log2(8)) / ideal)


def test_sessions_rank_by_their_first_turn():
    """Later turns of a session change nothing."""
    assert metrics.session_ranking(["s2", "s1", "s2", "s3", "s1"]) == ["s2", "s1", "s3"]
    assert metrics.session_ranking([]) == []


def test_an_interval_holds_its_mean_and_repeats_itself():
    """The seed is fixed; another one gives another interval."""
    values = np.random.default_rng(1).random((200, 2))
    first = bootstrap.intervals(values)
    assert first == bootstrap.intervals(values)
    assert first != bootstrap.intervals(values, seed=2)
    for column, interval in enumerate(first):
        assert interval.mean == pytest.approx(values[:, column].mean(), abs=1e-4)
        assert interval.low < interval.mean < interval.high


def test_an_interval_is_as_wide_as_the_normal_distribution_says():
    """For many questions 95 % of the means lie within 1.96 standard errors."""
    values = np.random.default_rng(2).random((2_000, 1)) < 0.3
    (interval,) = bootstrap.intervals(values)
    error = values.std() / math.sqrt(len(values))
    assert interval.high - interval.low == pytest.approx(2 * 1.96 * error, rel=0.1)


def test_an_interval_narrows_with_the_questions_and_vanishes_without_variance():
    """Four times the questions, half the width."""
    values = (np.arange(400) % 10 < 3).astype(float)[:, np.newaxis]
    (few,), (many,) = bootstrap.intervals(values[:100]), bootstrap.intervals(values)
    assert (few.high - few.low) / (many.high - many.low) == pytest.approx(2, rel=0.25)
    (still,) = bootstrap.intervals(np.ones((50, 1)))
    assert (still.low, still.mean, still.high) == (1.0, 1.0, 1.0)


def test_a_paired_difference_is_surer_than_two_intervals():
    """Two settings that differ in the same few questions: apart their intervals overlap, paired 0 is left out."""
    random = np.random.default_rng(3)
    one = (random.random((500, 1)) < 0.5).astype(float)
    other = one.copy()
    other[np.flatnonzero(one == 0)[:15]] = 1.0
    (a,), (b,), (difference,) = (bootstrap.intervals(values) for values in (one, other, other - one))
    assert a.high > b.low
    assert difference.leaves_out_zero
    assert not bootstrap.intervals(one - one)[0].leaves_out_zero


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


def test_questions_of_locomo_are_read_and_what_is_left_out_is_counted(locomo):
    """Sessions follow from the evidence turns, and bear the names they have in the store."""
    corpus = read_corpus(locomo)
    assert (corpus.name, corpus.shape, corpus.turns, corpus.sessions, corpus.conversations) == (
        "talks",
        "locomo",
        6,
        3,
        2,
    )
    assert corpus.questions[0].category == "multi-hop"
    assert corpus.questions[0].sessions == {"garden/1", "garden/2"}
    assert corpus.questions[1].turns == {"D1:1"}
    assert corpus.unknown_evidence == 2
    assert corpus.left_out() == {
        "turn": {"adversarial": 1, "without evidence turn": 2},
        "session": {"adversarial": 1, "without evidence session": 2},
    }
    assert corpus.characters == sum(len(f"{speaker}: {text}") for _, _, _, speaker, text in SAID)


def test_questions_of_longmemeval_may_have_evidence_in_sessions_only(longmemeval):
    """Such a question is left out among turns and asked among sessions."""
    corpus = read_corpus(longmemeval)
    assert corpus.shape == "longmemeval"
    assert corpus.questions[0].sessions == {"garden/1", "garden/2"}
    assert corpus.questions[0].groups == ("official", "official, s_haystack")
    assert corpus.questions[1].groups == ()
    assert corpus.left_out() == {"turn": {"abstention": 1, "without evidence turn": 1}, "session": {"abstention": 1}}


def test_questions_of_no_known_shape_are_refused():
    """Nothing is guessed about adversarial questions."""
    with pytest.raises(ValueError, match="neither of LoCoMo's shape"):
        shape_of([{"conversation": "a", "question": "b", "evidence": []}])


def test_a_run_asks_every_question_in_its_own_conversation(locomo, longmemeval, tmp_path, capsys):
    """From files to JSON, page and picture; the words of the other conversation are never found."""
    out, page, picture = tmp_path / "out.json", tmp_path / "page.md", tmp_path / "bars.svg"
    options = ["--store", tmp_path / "stores", "--json", out, "--write", page, "--plot", picture]
    flags = ["--ablation", "--targets", "--tuned-on", "talks"]
    arguments = [str(word) for word in (locomo, longmemeval, *options, *flags)]
    encoder = HashEncoder()
    main(arguments, encoder=encoder)
    talks, haystacks = json.loads(out.read_text())["datasets"]

    first, *others = talks["settings"]
    assert first["name"] == "all"
    assert {"text only", "vector only"} <= {setting["name"] for setting in others}
    turn, session = (first["levels"][level]["overall"] for level in ("turn", "session"))
    assert (turn["questions"], session["questions"]) == (2, 2)
    assert turn["metrics"]["evidence recall@10"] == {"mean": 1.0, "low": 1.0, "high": 1.0}
    assert turn["metrics"]["hit@1"]["mean"] == 1.0
    assert set(first["levels"]["turn"]["categories"]) == {"multi-hop", "single-hop"}
    assert first["differences"] == {}
    assert others[0]["differences"]["turn"]["hit@10"] == {"mean": 0.0, "low": 0.0, "high": 0.0}
    text_only = next(setting for setting in others if setting["name"] == "text only")
    assert text_only["times"]["questions_encoded"] == 0
    assert first["times"]["questions_encoded"] == 2
    assert first["shallow"] == 0
    assert talks["corpus_cost"]["texts"] == talks["encoded_now"] > 0

    found = haystacks["settings"][0]["levels"]
    assert (found["turn"]["overall"]["questions"], found["session"]["overall"]["questions"]) == (1, 2)
    assert found["session"]["groups"]["official"]["questions"] == 1

    text = page.read_text()
    assert "1 adversarial" in text
    assert str(tmp_path) not in text
    assert "**talks**. Its figures are optimistic." in text
    assert "knowledge-update" in capsys.readouterr().out

    again = tmp_path / "again.svg"
    draw(talks, again)
    assert again.read_bytes() == picture.read_bytes()

    embedded = encoder.texts_encoded
    main(arguments, encoder=encoder)
    assert (
        encoder.texts_encoded - embedded == 2 + 2 + 2
    )  # Questions, and a first text for each store; the corpora are there.
    kept = json.loads(out.read_text())["datasets"][0]
    assert (kept["encoded_now"], kept["corpus_cost"]) == (0, talks["corpus_cost"])
    assert [setting["levels"] for setting in kept["settings"]] == [setting["levels"] for setting in talks["settings"]]


def test_the_ablation_takes_away_one_ingredient_at_a_time():
    """The first setting is what a user gets; each name is there once."""
    first, *others = ablation.settings().items()
    assert first == ("all", {})
    assert [name for name, arguments in others if not arguments] == []
    if (weights := getattr(mnemolog, "Weights", None)) is not None:
        for name in ablation.INGREDIENTS:
            assert getattr(weights(), name) > 0
            assert ablation.settings()[f"without {name}"] == {"weights": weights(**{name: 0.0})}


def test_the_command_in_a_report_names_no_place_on_this_machine():
    """Only the last name of an absolute path is said."""
    assert command_line(["/data/talks", "--depth", "100"]).endswith("path/to/talks --depth 100")
