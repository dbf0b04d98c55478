"""The language of a store: whose word endings the text index removes."""

import pytest

from mnemolog import InvalidInput, MemoryStore, NewTurn
from mnemolog.domain.choices import LANGUAGES
from mnemolog.projections.sql.position_blocks import BLOCK
from tests.support import HashEncoder

SAID = {
    "de": ("Wir haben drei Wohnungen besichtigt.", "Wohnung"),
    "fr": ("Elles ont réservé deux chambres.", "réserver une chambre"),
    "es": ("Las habitaciones son pequeñas.", "habitación"),
    "pt": ("Fizemos as reservações ontem.", "reservação"),
    "it": ("Le prenotazioni sono confermate.", "prenotazione"),
    "en": ("We looked at three flats.", "flat"),
}


def found(asked, query, **how):
    return [hit.text for hit in asked.recall(query, mode="text", **how)]


@pytest.mark.parametrize("language", LANGUAGES)
def test_endings_of_the_language_of_a_store_are_removed(folder, language):
    """What was said in the plural is found by the singular."""
    text, query = SAID[language]
    with MemoryStore.open(folder, model=None, language=language) as store:
        store.start_session("trip").record("user", text)
        assert found(store, query) == [text]
        assert store.admin.language() == language


def test_the_language_can_be_changed_and_all_turns_are_indexed_again(folder):
    """Those from before it too; an open store of another process follows, and back again."""
    text, query = SAID["de"]
    with MemoryStore.open(folder, model=None) as store, MemoryStore.open(folder, model=None) as other:
        session = store.start_session("trip")
        session.record("user", text)
        assert (found(other, query), store.admin.language()) == ([], "en"), "unless it says otherwise"
        assert store.admin.set_language("German") is True
        assert store.admin.set_language("de") is False
        assert found(other, query) == found(store, query) == found(session, query) == [text]
        other.session("trip").record("user", "Die Wohnung ist groß.")
        assert len(found(store, "Wohnungen")) == 2
        assert other.admin.set_language("en") is True
        assert found(store, query) == found(other, query) == ["Die Wohnung ist groß."]
        assert store.admin.doctor(deep=True).healthy
    with MemoryStore.open(folder, model=None) as again:
        assert again.admin.language() == "en"


def test_an_answer_as_of_a_position_uses_the_language_of_then(folder):
    """So receipts reproduce after the language was changed: the same hits with the same scores."""
    text, query = SAID["de"]
    with MemoryStore.open(folder, model=HashEncoder(), background=False) as store:
        session = store.start_session("trip")
        for said in (text, "Eine Wohnung in Porto", "The flats of the flat hunters", "flat", "Wohnungen und flats"):
            session.record("user", said)
        questions = (query, "Wohnungen", "flat hunting", "flats")
        before = [store.recall(question, receipt=True) for question in questions]
        store.admin.set_language("de")
        session.record("user", "Noch eine Wohnung")
        assert found(store, query) != [hit.text for hit in before[0]]
        for question, answer in zip(questions, before, strict=True):
            again = store.recall(question, as_of=answer.head)
            assert [(hit.position, hit.relevance) for hit in again] == [(hit.position, hit.relevance) for hit in answer]
            assert again.hits[0].ranks == answer.hits[0].ranks
        later = [store.recall(question, receipt=True) for question in questions]
        store.rebuild("views")
        assert store.audit.receipts().sound
        store.admin.set_language("fr")
        assert store.audit.receipts().sound
        assert len(later) == len(before)


def test_after_a_change_of_language_an_open_store_scores_as_one_that_is_opened_then(folder):
    """Also where it has read the lengths of thousands of turns in words, which each language counts."""
    texts = [" ".join(["l'eau d'Italie"] * (number % 7 + 1) + ["vin"] * (number % 3)) for number in range(2 * BLOCK)]
    with MemoryStore.open(folder, model=None) as store:
        store.session("trip")
        store.record_many([NewTurn(session="trip", role="user", text=text) for text in texts])

        def ranks(asked):
            return [(hit.position, hit.ranks) for hit in asked.recall("eau et vin", mode="text", k=50)]

        english = ranks(store)
        for language in ("fr", "en"):
            store.admin.set_language(language)
            warm = ranks(store)
            with MemoryStore.open(folder, model=None) as again:
                assert ranks(again) == warm
        assert warm == english


def test_forgotten_words_leave_the_index_of_every_language(folder):
    """Forgetting after a change of language purges the stems in the new one."""
    with MemoryStore.open(folder, model=None) as store:
        session = store.start_session("trip")
        turn = session.record("user", "Geheimzahlen")
        session.record("user", "Wohnung")
        store.admin.set_language("de")
        assert found(store, "Geheimzahl") == ["Geheimzahlen"]
        store.forget(positions=turn.position)
        assert found(store, "Geheimzahl") == []
        store.admin.set_language("en")
        assert found(store, "Geheimzahlen") == []
    assert b"geheimzahl" not in (folder / "projections" / "views.db").read_bytes()


def test_open_does_not_change_the_language_of_a_store(folder):
    """It says how to; another process may rely on it."""
    with MemoryStore.open(folder, model=None, language="de") as store:
        store.start_session("trip")
    with pytest.raises(InvalidInput, match=r"this store has the language 'de'; store\.admin\.set_language\('fr'\)"):
        MemoryStore.open(folder, model=None, language="fr")
    with MemoryStore.open(folder, model=None, language="de") as store:
        assert store.admin.language() == "de"


@pytest.mark.log_file
@pytest.mark.parametrize("language", ["klingon", "", 5])
def test_a_language_that_is_not_there_is_refused_with_those_there_are(folder, language):
    """Before anything is created."""
    with pytest.raises(InvalidInput, match=r"language: .* is none of en \(english\), de \(german\), fr"):
        MemoryStore.open(folder, model=None, language=language)
    assert not folder.exists()


def test_the_language_is_chosen_on_the_command_line(tmp_path, run):
    """When a store is created, and later."""
    memory = tmp_path / "memory"
    assert run("init", memory, "--language", "de").returncode == 0
    assert run("language", memory).stdout == "de (german)\n"
    assert run("record", memory, "trip", SAID["de"][0], "--start").returncode == 0
    assert run("recall", memory, "Wohnung", "--mode", "text", "--json").json["hits"]
    assert run("language", memory, "fr", "--json").json == {"language": "fr", "changed": True}
    assert run("language", memory, "fr").stdout == "fr (french)\n"
    assert not run("recall", memory, "Wohnung", "--mode", "text", "--json").json["hits"]
    assert "is none of en (english)" in run("language", memory, "klingon").stderr
