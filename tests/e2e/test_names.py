"""Paths as people write them, and names that are no UTF-8.

Names as people have them: what a label may hold, and one spelling for names that look the same.
"""

import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from unicodedata import normalize

import pytest

from mnemolog import InvalidInput, MemoryStore, import_log, restore_backup
from mnemolog.adapters.importers.import_files import import_files
from mnemolog.domain import errors
from mnemolog.domain.scope import Boundary
from mnemolog.domain.spelling import spelled
from mnemolog.domain.values import checked_label
from tests.support import WAIT_S, HashEncoder, start


@pytest.mark.local
def test_a_tilde_is_the_home_folder_in_every_path(tmp_path, monkeypatch):
    """Of a store, its backup and keys, a file of heads, an export, an import: no folder is called `~`."""
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(elsewhere)
    (home / "chat.jsonl").write_text('{"role": "user", "text": "Tea."}\n')
    with MemoryStore.open("~/memory", model=None) as store:
        assert store.path == home / "memory"
        assert import_files(store, "~/chat.jsonl").recorded == 1
        store.audit.append_head("~/heads.jsonl")
        assert store.verify(heads="~/heads.jsonl").sound
        store.audit.export("~/log.jsonl")
        store.backup("~/copy", keys="~/keys")
    import_log("~/log.jsonl", "~/again")
    restore_backup("~/copy", "~/restored", keys="~/keys")
    found = {path.name for path in home.iterdir()}
    assert found == {"memory", "chat.jsonl", "heads.jsonl", "log.jsonl", "copy", "keys", "again", "restored"}
    assert list(elsewhere.iterdir()) == []


@pytest.mark.local
@pytest.mark.parametrize("path", [None, 5, "", b"memory", "~nobody-of-that-name/memory", ":memory:", "sqlite:///m.db"])
def test_what_is_no_path_is_refused(path):
    """With the name of the argument."""
    with pytest.raises(InvalidInput, match="path: "):
        MemoryStore.open(path, model=None)


@pytest.mark.local
def test_one_file_or_several_are_imported(store, tmp_path):
    """A path alone is one file, not a list of letters."""
    file = tmp_path / "chat.jsonl"
    file.write_text('{"role": "user", "text": "Tea."}\n')
    assert import_files(store, str(file)).files == 1
    assert import_files(store, file).already_there == 1
    assert import_files(store, [file]).already_there == 1


SHOWN = "\\udcff"


@pytest.fixture
def odd(tmp_path):
    """A folder with a byte that is no UTF-8 in its name."""
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/odd\xff"))
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("this file system has names in UTF-8 only")
    return folder


@pytest.mark.local
@pytest.mark.parametrize("encrypt", [True, False], ids=["encrypted", "plain"])
def test_a_store_in_such_a_folder_works(odd, encrypt):
    """Recording, both kinds of search, vectors, forgetting, verifying, and all that is shown of it."""
    with MemoryStore.open(odd / "m", model=HashEncoder(), background=False, encrypt=encrypt) as store:
        store.session("trip").record("user", "tea in Porto")
        store.admin.catch_up_vectors()
        assert store.recall("tea").hits[0].text == "tea in Porto"
        assert SHOWN in json.loads(store.status().to_json())["path"]
        assert SHOWN in repr(store.status().path)
        assert store.verify().sound
    with MemoryStore.open(odd / "m", model=None, create=False) as store:
        assert len(store.turns("trip")) == 1
    assert [path.name for path in odd.iterdir()] == ["m"]
    assert [path.name for path in odd.parent.iterdir()] == [odd.name]


@pytest.mark.local
def test_a_log_file_in_utf8_takes_the_path(odd, caplog):
    """Messages show the byte escaped."""
    caplog.set_level("INFO", logger="mnemolog")
    MemoryStore.open(odd / "m", model=None, background=False).close()
    assert f"odd{SHOWN}/m" in caplog.text
    assert caplog.text.encode("utf-8")


@pytest.mark.local
def test_every_target_and_source_of_a_command_may_have_such_a_name(odd, run):
    """Backup, restore, export, import, a file of heads; as text and as JSON."""
    store = odd / "m"
    with MemoryStore.open(store, model=None, background=False, encrypt=False) as opened:
        opened.session("trip").record("user", "tea in Porto")
    command = [sys.executable, "-m", "mnemolog", "status", os.fsencode(store)]
    assert SHOWN in subprocess.run(command, capture_output=True, timeout=WAIT_S, check=True).stdout.decode()
    for name in ("status", "doctor"):
        assert SHOWN in run(name, store).stdout.encode().decode()
        assert run(name, store, "--json").json
    for line in (
        ("head", store, "--append", odd / "heads"),
        ("verify", store, "--heads", odd / "heads"),
        ("backup", store, odd / "b", "--json"),
        ("restore", odd / "b", odd / "r", "--json"),
        ("export", store, odd / "log.jsonl"),
        ("import", odd / "i", odd / "log.jsonl"),
    ):
        assert run(*line).exited().stdout.encode() != b""
    for copy in ("r", "i"):
        assert "tea in Porto" in run("recall", odd / copy, "tea", "--model", "none").stdout
    assert sorted(path.name for path in odd.iterdir()) == ["b", "heads", "i", "log.jsonl", "m", "r"]


CAFE, DECOMPOSED = "café", normalize("NFD", "café")
SCOTLAND = "\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f"
STAYS = ["\U0001f469\u200d\U0001f4bb Ana", "\u200eAna", "Ana\u200f", "\u061cAna", "Ana\xa0B", SCOTLAND]
STAYS.append("\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645")  # Persian, with a non-joiner.
UNSEEN = [0x00, 0x07, 0x0A, 0x7F, 0x85, 0x9B, 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
UNSEEN += [0x200B, 0x2060, 0xFEFF, 0xE0041]


def begun(store, session, scope=""):
    """Start a session as an earlier version did: under the name that was given."""
    store.parts.log.appends.transact(start(session, scope=scope))


@pytest.mark.parametrize("name", STAYS)
def test_a_name_keeps_joiners_marks_of_direction_and_spaces(bare, name):
    turn = bare.session(name, scope=name, title=name).record("user", "Hello.", speaker=name)
    bare.assert_fact(name, 1, scope=name)
    assert (bare.turns(name)[0], bare.fact(name, scope=name).value) == (turn, 1)
    assert turn.speaker == bare.sessions()[0].title == name


@pytest.mark.parametrize("code", UNSEEN, ids=hex)
def test_what_cannot_be_seen_is_refused_by_its_name_and_removed_by_an_import(bare, tmp_path, code):
    name = f"A{chr(code)}na"
    with pytest.raises(errors.InvalidInput, match=f"U\\+{code:04X}|NUL"):
        checked_label("speaker", name)
    file = tmp_path / "chat.jsonl"
    file.write_text(json.dumps({"role": "user", "speaker": name, "session": "s", "text": "Hello."}))
    assert import_files(bare, file).left_out == {"unseen characters in speaker": 1}
    assert bare.turns("s")[0].speaker == ("A na" if chr(code).isspace() else "Ana")


def test_a_name_of_marks_alone_is_refused():
    with pytest.raises(errors.InvalidInput, match="nothing of it can be seen"):
        checked_label("speaker", "\u200e\u200d")


@pytest.mark.parametrize(("said", "asked"), [(CAFE, DECOMPOSED), (DECOMPOSED, CAFE)])
def test_a_phrase_is_found_in_either_form(bare, said, asked):
    bare.session("s").record("user", f"At the {said.upper()}.")
    assert len(bare.find(asked)) == 1


def test_new_names_are_composed_and_found_as_they_are_given(bare):
    bare.session(DECOMPOSED, scope=f"acme/{DECOMPOSED}").record("user", "Hello.")
    bare.session(CAFE).set(DECOMPOSED, 1)
    bare.assert_fact(f"user/{DECOMPOSED}", "x", scope=f"acme/{DECOMPOSED}")
    (session,) = bare.sessions(scope=f"acme/{DECOMPOSED}")
    assert (session.session, session.scope) == (CAFE, f"acme/{CAFE}")
    assert bare.session(DECOMPOSED).all() == {CAFE: 1}
    assert bare.session(DECOMPOSED).get(DECOMPOSED) == 1
    for key in (f"user/{CAFE}", f"user/{DECOMPOSED}"):
        assert bare.fact(key, scope=f"acme/{DECOMPOSED}").key == f"user/{CAFE}"
        assert [fact.key for fact in bare.facts(key[:-2] + "*", scope="acme")] == [f"user/{CAFE}"]
    assert len(bare.recall("hello", scope=f"acme/{DECOMPOSED}")) == 1
    assert bare.within(f"acme/{DECOMPOSED}").parts.boundary.scopes == (f"acme/{CAFE}",)


def test_two_spellings_of_an_earlier_store_stay_apart_and_doctor_names_them(bare):
    for name in (CAFE, DECOMPOSED):
        begun(bare, name, scope=name)
        bare.session(name).record("user", f"{len(name)} letters")
    assert [bare.turns(name)[0].text for name in (CAFE, DECOMPOSED)] == ["4 letters", "5 letters"]
    assert [len(bare.sessions(scope=name)) for name in (CAFE, DECOMPOSED)] == [1, 1]
    found = [issue for issue in bare.admin.doctor().findings if issue.what == "names"]
    assert [issue.where.split()[0] for issue in found] == ["session", "scope"]
    assert bare.admin.doctor().healthy


def test_below_a_spelling_that_exists_names_are_written_as_it_is(bare):
    begun(bare, "old", scope=DECOMPOSED)
    bare.session("new", scope=f"{DECOMPOSED}/bob").record("user", "Hello.")
    assert bare.sessions(scope=DECOMPOSED)[1].scope == f"{DECOMPOSED}/bob"
    bound = bare.within(DECOMPOSED)
    bound.session("mine").record("user", "Hello.")
    assert {item.scope for item in bound.sessions()} == {DECOMPOSED, f"{DECOMPOSED}/bob"}
    with pytest.raises(errors.OutsideScope):
        bound.sessions(scope=CAFE)


def test_the_scope_of_a_token_counts_as_it_is_stored(bare):
    bare.admin.create_token("ann", scopes=[DECOMPOSED], expires_in=timedelta(days=1))
    assert bare.admin.tokens()[0].scopes == (CAFE,)
    bare.parts.names.people = lambda: [f"zoë/{DECOMPOSED}"]
    assert bare.within(f"zoë/{DECOMPOSED}").parts.boundary.scopes == (f"zoë/{DECOMPOSED}",)
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


def test_a_file_in_two_spellings_is_one_session_and_an_earlier_one_is_gone_on_with(bare, tmp_path):
    for form in ("NFC", "NFD"):
        file = tmp_path / form / normalize(form, "Résumé.csv")
        file.parent.mkdir()
        file.write_text("role,text\nuser,Hello.\n")
        recorded = import_files(bare, file).recorded
    assert ([item.session for item in bare.sessions()], recorded) == (["Résumé"], 0)
    begun(bare, old := normalize("NFD", "Café"))
    file = tmp_path / f"{old}.csv"
    file.write_text("role,text\nuser,Hello.\n")
    import_files(bare, file)
    assert [turn.text for turn in bare.turns(old)] == ["Hello."]


def test_an_import_into_some_scopes_stays_in_the_scope_that_the_file_names(bare, tmp_path):
    """One that names none has none, whatever the letters of its session are."""
    file = tmp_path / "chat.jsonl"
    turns = [{"role": "user", "text": "Hello.", "session": DECOMPOSED, "scope": scope} for scope in ("a/\u00e9",)]
    file.write_text("\n".join(map(json.dumps, [*turns, {"role": "user", "text": "Hi.", "session": "z\u00e9"}])))
    import_files(bare, file)
    assert [(item.session, item.scope) for item in bare.sessions()] == [(CAFE, "a/\u00e9"), ("z\u00e9", "")]
