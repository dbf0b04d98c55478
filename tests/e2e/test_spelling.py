"""Names as people have them: what a label may hold, and one spelling for names that look the same."""

import json
from datetime import timedelta
from unicodedata import normalize

import pytest

from mnemolog import MemoryStore
from mnemolog.adapters.importers.import_files import import_files
from mnemolog.domain import errors
from mnemolog.domain.scope import Boundary
from mnemolog.domain.spelling import spelled
from mnemolog.domain.values import checked_label
from tests.support import start

CAFE, DECOMPOSED = "café", normalize("NFD", "café")
SCOTLAND = "\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f"
STAYS = ["\U0001f469\u200d\U0001f4bb Ana", "\u200eAna", "Ana\u200f", "\u061cAna", "Ana\xa0B", SCOTLAND]
STAYS.append("\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645")  # Persian, with a non-joiner.
UNSEEN = [0x00, 0x07, 0x0A, 0x7F, 0x85, 0x9B, 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
UNSEEN += [0x200B, 0x2060, 0xFEFF, 0xE0041]


@pytest.fixture
def store(tmp_path):
    with MemoryStore.open(tmp_path / "store", model=None) as opened:
        yield opened


def begun(store, session, scope=""):
    """Start a session as an earlier version did: under the name that was given."""
    store.parts.log.appends.transact(start(session, scope=scope))


@pytest.mark.parametrize("name", STAYS)
def test_a_name_keeps_joiners_marks_of_direction_and_spaces(store, name):
    turn = store.session(name, scope=name, title=name).record("user", "Hello.", speaker=name)
    store.assert_fact(name, 1, scope=name)
    assert (store.turns(name)[0], store.fact(name, scope=name).value) == (turn, 1)
    assert turn.speaker == store.sessions()[0].title == name


@pytest.mark.parametrize("code", UNSEEN, ids=hex)
def test_what_cannot_be_seen_is_refused_by_its_name_and_removed_by_an_import(store, tmp_path, code):
    name = f"A{chr(code)}na"
    with pytest.raises(errors.InvalidInput, match=f"U\\+{code:04X}|NUL"):
        checked_label("speaker", name)
    file = tmp_path / "chat.jsonl"
    file.write_text(json.dumps({"role": "user", "speaker": name, "session": "s", "text": "Hello."}))
    assert import_files(store, file).left_out == {"unseen characters in speaker": 1}
    assert store.turns("s")[0].speaker == ("A na" if chr(code).isspace() else "Ana")


def test_a_name_of_marks_alone_is_refused():
    with pytest.raises(errors.InvalidInput, match="nothing of it can be seen"):
        checked_label("speaker", "\u200e\u200d")


@pytest.mark.parametrize(("said", "asked"), [(CAFE, DECOMPOSED), (DECOMPOSED, CAFE)])
def test_a_phrase_is_found_in_either_form(store, said, asked):
    store.session("s").record("user", f"At the {said.upper()}.")
    assert len(store.find(asked)) == 1


def test_new_names_are_composed_and_found_as_they_are_given(store):
    store.session(DECOMPOSED, scope=f"acme/{DECOMPOSED}").record("user", "Hello.")
    store.session(CAFE).set(DECOMPOSED, 1)
    store.assert_fact(f"user/{DECOMPOSED}", "x", scope=f"acme/{DECOMPOSED}")
    (session,) = store.sessions(scope=f"acme/{DECOMPOSED}")
    assert (session.session, session.scope) == (CAFE, f"acme/{CAFE}")
    assert store.session(DECOMPOSED).all() == {CAFE: 1}
    assert store.session(DECOMPOSED).get(DECOMPOSED) == 1
    for key in (f"user/{CAFE}", f"user/{DECOMPOSED}"):
        assert store.fact(key, scope=f"acme/{DECOMPOSED}").key == f"user/{CAFE}"
        assert [fact.key for fact in store.facts(key[:-2] + "*", scope="acme")] == [f"user/{CAFE}"]
    assert len(store.recall("hello", scope=f"acme/{DECOMPOSED}")) == 1
    assert store.within(f"acme/{DECOMPOSED}").parts.boundary.scopes == (f"acme/{CAFE}",)


def test_two_spellings_of_an_earlier_store_stay_apart_and_doctor_names_them(store):
    for name in (CAFE, DECOMPOSED):
        begun(store, name, scope=name)
        store.session(name).record("user", f"{len(name)} letters")
    assert [store.turns(name)[0].text for name in (CAFE, DECOMPOSED)] == ["4 letters", "5 letters"]
    assert [len(store.sessions(scope=name)) for name in (CAFE, DECOMPOSED)] == [1, 1]
    found = [issue for issue in store.admin.doctor().findings if issue.what == "names"]
    assert [issue.where.split()[0] for issue in found] == ["session", "scope"]
    assert store.admin.doctor().healthy


def test_below_a_spelling_that_exists_names_are_written_as_it_is(store):
    begun(store, "old", scope=DECOMPOSED)
    store.session("new", scope=f"{DECOMPOSED}/bob").record("user", "Hello.")
    assert store.sessions(scope=DECOMPOSED)[1].scope == f"{DECOMPOSED}/bob"
    bound = store.within(DECOMPOSED)
    bound.session("mine").record("user", "Hello.")
    assert {item.scope for item in bound.sessions()} == {DECOMPOSED, f"{DECOMPOSED}/bob"}
    with pytest.raises(errors.OutsideScope):
        bound.sessions(scope=CAFE)


def test_the_scope_of_a_token_counts_as_it_is_stored(store):
    store.admin.create_token("ann", scopes=[DECOMPOSED], expires_in=timedelta(days=1))
    assert store.admin.tokens()[0].scopes == (CAFE,)
    store.parts.names.people = lambda: [f"zoë/{DECOMPOSED}"]
    assert store.within(f"zoë/{DECOMPOSED}").parts.boundary.scopes == (f"zoë/{DECOMPOSED}",)
    assert Boundary((CAFE,)).narrow((DECOMPOSED,)) == (CAFE,)
    with pytest.raises(errors.OutsideScope):
        Boundary((DECOMPOSED,)).narrow((CAFE,))


@pytest.mark.parametrize(
    ("has", "found"),
    [
        ((), f"{CAFE}/é"),
        ((f"{DECOMPOSED}/e\u0301",), f"{DECOMPOSED}/e\u0301"),
        ((DECOMPOSED,), f"{DECOMPOSED}/e\u0301"),
        ((DECOMPOSED, f"{CAFE}/é"), f"{CAFE}/é"),
        ((CAFE,), f"{CAFE}/é"),
    ],
)
def test_a_name_is_looked_for_as_given_then_composed_then_below_what_exists(has, found):
    assert spelled(f"{DECOMPOSED}/e\u0301", has.__contains__) == found


def test_a_file_in_two_spellings_is_one_session_and_an_earlier_one_is_gone_on_with(store, tmp_path):
    for form in ("NFC", "NFD"):
        file = tmp_path / form / normalize(form, "Résumé.csv")
        file.parent.mkdir()
        file.write_text("role,text\nuser,Hello.\n")
        recorded = import_files(store, file).recorded
    assert ([item.session for item in store.sessions()], recorded) == (["Résumé"], 0)
    begun(store, old := normalize("NFD", "Café"))
    file = tmp_path / f"{old}.csv"
    file.write_text("role,text\nuser,Hello.\n")
    import_files(store, file)
    assert [turn.text for turn in store.turns(old)] == ["Hello."]


def test_an_import_into_some_scopes_stays_in_the_scope_that_the_file_names(store, tmp_path):
    """One that names none has none, whatever the letters of its session are."""
    file = tmp_path / "chat.jsonl"
    turns = [{"role": "user", "text": "Hello.", "session": DECOMPOSED, "scope": scope} for scope in ("a/\u00e9",)]
    file.write_text("\n".join(map(json.dumps, [*turns, {"role": "user", "text": "Hi.", "session": "z\u00e9"}])))
    import_files(store, file)
    assert [(item.session, item.scope) for item in store.sessions()] == [(CAFE, "a/\u00e9"), ("z\u00e9", "")]
