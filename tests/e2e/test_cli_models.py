"""Models from the command line: add, activate, go back, drop, with two small SentenceTransformer models."""

import pytest

from mnemolog import MemoryStore
from tests.integration.test_encoder import tiny_model

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def mean(tmp_path_factory):
    """A model of a few weights."""
    return tiny_model(tmp_path_factory.mktemp("models") / "mean")


@pytest.fixture(scope="module")
def largest(tmp_path_factory):
    """Another one of the same dimension and the same weights, put together otherwise."""
    return tiny_model(tmp_path_factory.mktemp("models") / "largest", pooling="max")


@pytest.fixture
def memory(folder):
    """A store with a few turns, closed."""
    with MemoryStore.open(folder, model=None) as store:
        session = store.start_session("trip")
        for text in ("I moved to Lisbon in March.", "The dog is called Nero.", "She is allergic to peanuts."):
            session.record("user", text)
    return folder


def recalled(run, folder, model):
    """Fingerprint of the model that answers, opened with `model` and told of no other."""
    answer = run("recall", folder, "dog", "--mode", "vector", "--model", model, "--json").json
    assert len(answer["hits"]) == 3
    assert answer["hits"][0]["similarity"] <= 1.0 + 1e-5
    return answer["model"]


def test_a_change_of_model_and_back(run, memory, mean, largest):
    """Built, activated, found by its folder from any process, gone back from without embedding, and dropped."""
    assert run("model", "list", memory, "--json").json == []
    assert "no model was activated" in run("model", "list", memory).stdout
    planned = run("model", "add", memory, largest, "--dry-run", "--json").json
    assert (planned["encoded_texts"], planned["dry_run"]) == (3, True)
    assert run("model", "list", memory, "--json").json == []
    for model in (mean, largest):
        assert run("model", "add", memory, model, "--json").json["built_turns"] == 3
    by_name = {item["name"]: item for item in run("model", "list", memory, "--json").json}
    assert {name: (item["state"], item["vectors"], item["active"]) for name, item in by_name.items()} == {
        str(model): ("current", 3, False) for model in (mean, largest)
    }
    old, new = by_name[str(mean)]["fingerprint"], by_name[str(largest)]["fingerprint"]
    assert recalled(run, memory, mean) == old
    activated = run("model", "activate", memory, largest, "--json").json
    assert (activated["fingerprint"], activated["appended"], activated["encoded_texts"]) == (new, True, 0)
    assert recalled(run, memory, mean) == new
    note = f"note: {largest} is active and answers; --model {mean} has no effect"
    said = {model: run("recall", memory, "dog", "--model", model).stderr for model in (mean, largest, "none")}
    assert {model: note in text for model, text in said.items()} == {mean: True, largest: False, "none": False}
    assert "was active already" in run("model", "activate", memory, new[:8]).exited().stdout
    assert run("model", "activate", memory, old[:8], "--json").json["encoded_texts"] == 0
    assert recalled(run, memory, largest) == old
    shown = run("model", "list", memory).stdout
    assert f"{old[:8]}" in shown
    assert "at 6, active" in shown


def test_a_drop_says_what_it_would_do_and_wants_a_yes(run, memory, mean, largest):
    """The active model is refused, and before any activation the one the store is opened with."""
    for model in (mean, largest):
        run("model", "add", memory, model)
    before = run("model", "list", memory, "--json").json
    refused = run("model", "drop", memory, mean, "--model", mean, "--yes")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "this store uses it" in refused.stderr
    for look, code in ((("--dry-run",), 0), ((), 1)):
        looked = run("model", "drop", memory, mean, "--model", "none", *look).exited(code)
        assert "would remove 1 generation of 3 vectors and 0 texts of the embedding cache" in looked.stdout
        assert ("--yes" in looked.stderr) == (code == 1)
    assert run("model", "list", memory, "--json").json == before
    dropped = run("model", "drop", memory, mean, "--model", "none", "--yes", "--json").json
    assert (dropped["vectors"], dropped["embeddings"], dropped["dry_run"]) == (3, 0, False)
    assert [item["name"] for item in run("model", "list", memory, "--json").json] == [str(largest)]
    assert run("model", "add", memory, mean, "--json").json["encoded_texts"] == 3
    run("model", "activate", memory, mean)
    refused = run("model", "drop", memory, mean, "--yes")
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 2)
    assert "is active" in refused.stderr


def test_a_folder_is_named_by_its_whole_path(run, memory, mean, monkeypatch):
    """The name in the event can be opened from any working directory; both ways to write it mean the same."""
    monkeypatch.chdir(mean.parent)
    run("model", "add", memory, "./mean")
    for asked, said in (("no-such-model", "model 'no-such-model'"), ("abcdef0123", "no model with that name")):
        ran = run("model", "activate", memory, asked)
        assert (ran.returncode, ran.stdout, len(ran.stderr.splitlines())) == (1, "", 2)
        assert said in ran.stderr
    activated = run("model", "activate", memory, "mean", "--json").json
    assert (activated["model"], activated["appended"]) == (str(mean), True)
    monkeypatch.chdir(memory)
    assert recalled(run, memory, "all-MiniLM-L6-v2") == run("model", "list", memory, "--json").json[0]["fingerprint"]
    monkeypatch.chdir(mean.parent)
    assert "is active" in run("model", "drop", memory, "mean", "--yes").stderr
    with MemoryStore.open(memory, model="mean", create=False) as store:
        assert store.models.activate("./mean").appended is False
        assert store.models.activate(mean).model == str(mean)
