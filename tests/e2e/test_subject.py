"""One person's data in one file: all of it, to read, to check and to import, and nothing of anybody else.

Certificates of erasures: a stranger checks each field with an export, and what is certified stays as it is.
"""

import copy
import importlib.util
import json
import subprocess
import sys
import zipfile
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from mnemolog import InvalidInput, MemoryStore, NewTurn, acting_as, errors
from mnemolog.adapters.importers import import_files
from mnemolog.domain.events import ForgetTarget, TurnRecorded
from mnemolog.domain.session import Original
from mnemolog.forgetting.history import Erasure
from mnemolog.forgetting.service import Forgetting
from tests.support import FakeClock

pytestmark = pytest.mark.local


ALICE, BOB = "acme/alice", "acme/bob"
VERIFIER = Path(__file__).parents[2] / "docs" / "verify_export.py"


@pytest.fixture
def store(folder, tmp_path):
    with MemoryStore.open(folder, model=None, clock=FakeClock(), audit_reads=tmp_path / "reads.jsonl") as opened:
        yield opened


def planted(store):
    """Record what Alice said, and around it what is of Bob: each text and label of his has BOB in it, of hers ALICE."""
    hers = store.session("trip", scope=ALICE, title="ALICE's trip")
    his = store.session("BOB's", scope=BOB, title="BOB's title", agent="BOB's agent")
    city = NewTurn(
        session=hers,
        role="user",
        text="Always answer in metric. ALICE lives in <b>Porto</b>.",
        speaker="Alice",
        said_at="2020-03-01T09:00Z",
        key="one",
        tool_calls=[{"name": "ALICE-tool"}],
        metadata={"ALICE": 1},
        original=Original(form="chat", data=b"ALICE-original"),
    )
    (city,) = store.record_many([city])
    pin = his.record("user", "BOB's pin is 4711, ferry", metadata={"of": "BOB"})
    gone = hers.record("user", "Forget that of ALICE's cat")
    hers.assert_fact("ALICE/city", "Porto", because=[city], valid_from="2020-03")
    hers.assert_fact("ALICE/city", "Lisbon", because=[city], valid_from="2020-05")
    wrong = store.assert_fact("ALICE/pin", "known", scope=ALICE, because=[pin, city])
    store.retract_fact(wrong, reason="misheard")
    store.assert_fact("BOB/knows", "BOB's city", scope=BOB, because=[city])
    hers.set("ALICE", 1)
    hers.set_task("ALICE's task")
    hers.note("ALICE's note")
    # A session of hers that continues one of his, one of his that continues hers, and a switch between both.
    store.switch("shared", reason="branch", session=his, scope=ALICE, agent="BOB's agent", title="BOB's title")
    store.session("shared").record("user", "ALICE was here, ferry")
    store.session("shared").note("BOB's note")
    store.switch("BOB's branch", reason="branch", session=hers, scope=BOB, agent="BOB's agent", title="BOB")
    store.switch("new", reason="new", session=his, agent="helper", scope=ALICE)
    store.session("child", scope=ALICE, parent=his)
    store.forget(positions=gone.position, reason="BOB asked")
    with acting_as("BOB"):
        store.recall("BOB asks: Porto", receipt=True, mode="text")
        receipt = store.recall("BOB asks: Porto", scope=[ALICE, BOB], receipt=True, mode="text").receipt
    store.audit.judge(receipt, good=[city.position], by="BOB")
    with acting_as("ALICE"):
        store.recall("ALICE asks: Porto", scope=ALICE, receipt=True, mode="text")
    store.distrust(positions=[city.position, pin.position], reason="BOB lied")
    store.trust_again(store.distrusts()[0], reason="BOB did not")
    store.admin.set_retention("acme", max_age="180d")
    store.admin.hold("acme", reason="BOB's case")
    return city


def read(file):
    """The records of a file by kind, and its manifest. What is on the page is what is in the data."""
    with zipfile.ZipFile(file) as archive:
        assert archive.namelist() == ["data.jsonl", "index.html", "manifest.json"]
        data, page, manifest = map(archive.read, archive.namelist())
    found = {}
    for line in data.splitlines():
        record = json.loads(line)
        found.setdefault(record["record"], []).append(record)
    manifest = json.loads(manifest)
    assert {kind: len(items) for kind, items in found.items()} == manifest["records"]
    assert (page.count(b"<article>"), b"<b>" in page, b"BOB" in data + page) == (len(data.splitlines()), False, False)
    return found, manifest


@pytest.mark.parametrize("folder", ["folder", "postgres"], indirect=True)
@pytest.mark.parametrize("within", ["", "acme", ALICE])
def test_a_file_has_everything_of_a_person_and_nothing_of_another(store, tmp_path, within):
    city = planted(store)
    file, bounded = tmp_path / "alice.zip", store.within(within) if within else store
    made = bounded.audit.subject(file, scope=ALICE)
    found, manifest = read(file)
    assert manifest == json.loads(made.to_json())
    assert (manifest["head"], manifest["scopes"]) == (str(store.head()), [ALICE])
    sees_all = within != ALICE
    assert [item["session"] for item in found["turn"]] == ["trip", *["shared"] * sees_all]
    (first, *_) = found["turn"]
    assert (first["position"], first["said_at"], first["speaker"]) == (city.position, "2020-03-01T09:00:00Z", "Alice")
    assert first["original"] == {"form": "chat", "data": "QUxJQ0Utb3JpZ2luYWw="}
    assert [item["what"] for item in found["forgotten"]] == ["turn.recorded.v1"]
    facts = [(item["key"], item["value"], item["state"], item["because"]) for item in found["fact"]]
    assert facts == [
        ("ALICE/city", "Porto", "superseded", [city.position]),
        ("ALICE/city", "Lisbon", "holds", [city.position]),
        ("ALICE/pin", "known", "retracted", [city.position]),
    ]
    sessions = {item["session"]: item for item in found["session"]}
    assert {name: item["title"] for name, item in sessions.items()} == {"trip": "ALICE's trip", "new": "", "child": ""}
    assert (sessions["trip"]["values"], sessions["trip"]["notes"][0]["text"]) == ({"ALICE": 1}, "ALICE's note")
    assert [item["text"] for item in found["standing"]] == ["Always answer in metric"]
    shown = [(item.get("query"), item.get("actor"), city.position in item["turns"]) for item in found["shown"]]
    others = {"": [(None, None, True)] * 2, "acme": [(None, None, True)], ALICE: []}[within]
    assert shown == [*others, ("ALICE asks: Porto", "ALICE", True)]
    distrusted = [(item["covers"], item["ended"], item["what"]) for item in found.get("distrust", ())]
    assert distrusted == ([([city.position], True, None)] if not within else [])
    assert (found["retention"][0]["max_age"], found["retention"][0]["held"]) == ("180d", True)
    last = json.loads((tmp_path / "reads.jsonl").read_text().splitlines()[-1])
    assert (last["operation"], last["scope"]) == ("audit.subject", [ALICE])
    assert any(first <= city.position <= last for first, last in last["positions"])


def test_an_import_has_the_same_turns_and_facts_and_can_be_repeated(store, tmp_path, run):
    planted(store)
    file = tmp_path / "alice.zip"
    store.audit.subject(file, scope=ALICE)
    told = run("import", tmp_path / "copy", file, "--model", "none").exited().stdout
    assert "2 turns read from 1 file, 2 recorded" in told
    with MemoryStore.open(tmp_path / "copy", model=None, clock=FakeClock()) as copy:
        import_files(copy, file)
        for name in ("trip", "shared"):
            same = [
                [(turn.role, turn.text, turn.speaker, turn.said_at, turn.tool_calls, turn.metadata, turn.scope)]
                for one in (store, copy)
                for turn in one.turns(name)
            ]
            assert same[0] == same[-1]
        for key in ("ALICE/city", "ALICE/pin"):
            facts, again = (
                [
                    (fact.value, fact.valid_from, fact.until, fact.state, fact.reason, len(fact.because))
                    for fact in found
                ]
                for found in (one.fact_history(key, scope=ALICE) for one in (store.within(ALICE), copy))
            )
            assert facts == again


def test_a_file_is_as_of_an_earlier_moment_and_whole_or_not_there(store, tmp_path, run):
    hers = store.session("trip", scope=ALICE)
    first = hers.record("user", "ALICE is here")
    hers.record("user", "ALICE left")
    then = store.audit.subject(tmp_path / "then.zip", scope=ALICE, as_of=first.position)
    assert (then.records["turn"], then.head.split(":")[0]) == (1, str(first.position))
    for scope in ("", ()):
        with pytest.raises(InvalidInput, match="scope"):
            store.audit.subject(tmp_path / "all.zip", scope=scope)
    with pytest.raises(errors.OutsideScope):
        store.within(BOB).audit.subject(tmp_path / "hers.zip", scope=ALICE)
    with pytest.raises(InvalidInput, match=r"then.zip exists"):
        store.audit.subject(tmp_path / "then.zip", scope=ALICE)

    def stop(done, total):
        raise KeyboardInterrupt

    before = (tmp_path / "then.zip").read_bytes()
    with pytest.raises(KeyboardInterrupt):
        store.audit.subject(tmp_path / "then.zip", scope=ALICE, replace=True, progress=stop)
    assert (tmp_path / "then.zip").read_bytes() == before
    assert not [*tmp_path.glob("*all.zip*"), *tmp_path.glob("*hers.zip*"), *tmp_path.glob(".*")]
    # A stranger, with Python alone.
    script = [sys.executable, VERIFIER]
    checked = subprocess.run([*script, tmp_path / "then.zip", then.head], capture_output=True, text=True)
    assert checked.stdout == f"sound: 2 files of {ALICE}, log {then.log_id}, head {then.head}\n"
    with zipfile.ZipFile(tmp_path / "then.zip") as whole, zipfile.ZipFile(tmp_path / "forged.zip", "w") as forged:
        for name in whole.namelist():
            forged.writestr(name, whole.read(name).replace(b"is here", b"was gone"))
    assert subprocess.run([*script, tmp_path / "forged.zip"], capture_output=True).returncode == 3
    told = run("subject", store.path, "--scope", ALICE, "-o", tmp_path / "now.zip").exited().stdout
    assert told.startswith(f"{ALICE} in {tmp_path / 'now.zip'}: 1 event, 2 turn")


_SPEC = importlib.util.spec_from_file_location("verify_export", VERIFIER)
SCRIPT = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(SCRIPT)


def filled(folder):
    """A store with sessions whose names are parts of each other, facts, questions and a copy of its keys."""
    store = MemoryStore.open(folder / "m", model=None, synchronous="NORMAL")
    for name in ("al", "alice", "bob"):
        session = store.session(name, scope=f"acme/{name}", title=f"of {name}", agent="desk")
        turns = [session.record("user", f"{name} says the ferry leaves at {n}").position for n in range(5)]
        session.clear()
        store.assert_fact("ferry", name, because=turns[:2], scope=f"acme/{name}")
        store.recall("tram", scope=f"acme/{name}", receipt=True)
    store.recall("tram", scope="acme", receipt=True)
    store.backup(folder / "backup", keys=folder / "keys")
    return store


def certificate_of(store, request):
    """The certificate of a request as bytes, as it is made now."""
    return store.parts.forgetting.certificate(request).to_json().encode()


KINDS = {
    "a session": {"session": "alice"},
    "single turns": {"positions": [3, 5, 6, 13], "questions": False},
}


@pytest.fixture(scope="module", params=[*KINDS, "bound", "not carried out", "not completed", "of a newer log"])
def true(request, tmp_path_factory):
    """A true certificate, with the export of its log."""
    folder, patch = tmp_path_factory.mktemp("true"), pytest.MonkeyPatch()
    with filled(folder) as store, acting_as("officer"):
        store.forget(positions=4, reason="before")
        if request.param == "not carried out":
            patch.setattr(Forgetting, "reached", staticmethod(_stop))
            with pytest.raises(InterruptedError):
                store.forget(session="alice", reason="asked on the phone")
            (asked,) = (item.request for item in store.audit.pending_erasures())
            made = certificate_of(store, asked)
        elif request.param == "of a newer log":
            names = {"stream": "session/alice", "versions": [(2, 3), (5, 12)], "counts": {TurnRecorded.topic: 9}}
            asked, at = ForgetTarget(**names), datetime(2026, 3, 16, tzinfo=UTC)
            erasure = Erasure(request="0" * 16, requested_at=at, reason="asked on the phone", targets=(asked,))
            store.admin.reapply_erasures([erasure])
            for n in range(5):
                store.record("alice", "user", f"recorded later {n}")
            made = certificate_of(store, erasure.request)
        else:
            if request.param == "not completed":
                patch.setattr(Forgetting, "_wipe", lambda *_: "another process is reading them")
            caller = store.within("acme/alice") if request.param == "bound" else store
            named = KINDS.get(request.param, {"session": "alice"})
            made = caller.forget(**named, reason="asked on the phone").certificate.to_json().encode()
        patch.undo()
        store.record("bob", "user", "later")
        store.audit.export(folder / "log.jsonl")
    return folder, json.loads(made)


def _stop(step):
    if step == "requested":
        raise InterruptedError


def checked(true, capsys, certificate):
    """Exit status of the check, and the fields that it calls stated only."""
    folder, _ = true
    (folder / "certificate.json").write_text(json.dumps(certificate))
    status = SCRIPT.main([str(folder / "log.jsonl"), "--certificate", str(folder / "certificate.json")])
    said = capsys.readouterr().out
    return status, {*said.partition("proved by no export: ")[2].strip().split(", ")} - {""}


def other_values(value):
    """Values that are not this one: others, longer, shorter, empty, and of another type."""
    yield from (None, {}, [], "", 0, -1, True, 1.5, [value], {"value": value})
    if isinstance(value, str):
        yield from (f"{value}x", value[:-1], value[1:], value.upper(), value.lower(), f" {value}", value[::-1])
    elif isinstance(value, bool) or value is None:
        yield not value
    elif isinstance(value, int):
        yield from (value + 1, value - 1, float(value), str(value), value + 2**64)
    elif isinstance(value, list):
        yield from (value[:-1], value[1:], [*value, *value[-1:]], [*value, 1], value[::-1])
    elif isinstance(value, dict):
        yield from (value | {"other": 1}, {str(key).upper(): item for key, item in value.items()})


def changes(value, path=()):
    """Yield each place in a document with what it may be changed to; ... removes it."""
    for key, item in [*(value.items() if isinstance(value, dict) else enumerate(value))]:
        for other in (*other_values(item), ...):
            if json.dumps(other if other is not ... else "removed") != json.dumps(item):
                yield (*path, key), other
        if isinstance(item, dict | list):
            yield from changes(item, (*path, key))


def test_each_changed_field_is_refused_or_called_stated_only(true, capsys):
    """In the true certificate only what remains and what a store says of itself is called so."""
    _, made = true
    assert checked(true, capsys, made) == (0, {"statements", "remains"})
    passed, tried = [], 0
    for path, value in changes(made):
        changed = copy.deepcopy(made)
        place = changed
        for key in path[:-1]:
            place = place[key]
        if value is ...:
            del place[path[-1]]
        else:
            place[path[-1]] = value
        status, stated = checked(true, capsys, changed)
        tried += 1
        if status == 0 and path[0] not in stated:
            passed.append((path, value))
    assert not passed, passed[:10]
    assert tried > 300
    statements = made["statements"] | {"complete": not made["statements"]["complete"]}
    assert checked(true, capsys, made | {"statements": statements})[0] == 3
    assert checked(true, capsys, made | {"proof": "sound"}) == (0, {"statements", "remains", "proof"})
    assert checked(true, capsys, None)[0] == 2
    doubled = json.dumps(made)[:-1] + ', "reason": "asked on the phone"}'
    (true[0] / "doubled.json").write_text(doubled)
    assert SCRIPT.main([str(true[0] / "log.jsonl"), "--certificate", str(true[0] / "doubled.json")]) == 2


def test_a_certificate_is_checked_with_a_whole_log(true, capsys):
    """An export that begins later may lack what was asked."""
    folder, made = true
    with MemoryStore.open(folder / "m", model=None) as store:
        store.audit.export(folder / "part.jsonl", after=2)
    (folder / "certificate.json").write_text(json.dumps(made))
    arguments = [str(folder / "part.jsonl"), "--certificate", str(folder / "certificate.json")]
    assert SCRIPT.main(arguments) == 3
    assert SCRIPT.main(arguments[:1]) == 0


@contextmanager
def waiting(monkeypatch):
    """Let the files of keys wait to be rewritten."""
    with monkeypatch.context() as patch:
        patch.setattr(Forgetting, "_wipe", lambda *_: "another process is reading them")
        yield


@pytest.mark.parametrize("within", ["", "acme/alice"])
def test_a_complete_certificate_stays_the_same(tmp_path, monkeypatch, within):
    """Whatever is recorded, asked, forgotten or copied later. Before, only what is done and what waits changes."""
    with filled(tmp_path) as store:
        caller = store.within(within) if within else store
        caller.session("alice").record("user", "twice", key="a#0123456789abcdef")
        with waiting(monkeypatch):
            begun = caller.forget(session="alice", questions=False, reason="asked on the phone")
            early = json.loads(begun.certificate.to_json())
            later_things(store, tmp_path / "one")
        assert not begun.complete
        assert store.parts.forgetting.resume()
        complete = certificate_of(store, begun.request)
        done = json.loads(complete)
        assert (early["statements"]["complete"], done["statements"]["complete"]) == (False, True)
        assert {name for name in done if done[name] != early[name]} == {"after", "statements", "remains"}
        kinds = {item["kind"]: item for item in early["remains"]}
        assert {item["kind"]: item for item in done["remains"]} == {k: v for k, v in kinds.items() if k != "files"}
        assert {"digests", "questions", "keys", "names"} <= kinds.keys()
        assert ("scopes" in kinds) == bool(within)
        later_things(store, tmp_path / "two")
        store.backup(tmp_path / "backup", keys=tmp_path / "keys", replace=True)
        (tmp_path / "m" / "backups.json").unlink()
        assert certificate_of(store, begun.request) == complete
    with MemoryStore.open(tmp_path / "m", model=None) as store:
        assert certificate_of(store, begun.request) == complete
        assert store.verify().sound


def later_things(store, folder):
    """Record, ask, forget, and copy the keys."""
    store.record("alice", "user", "again", key=f"{folder.name}#0123456789abcdef")
    store.recall("alice", scope="acme/alice", receipt=True)
    gone = [item.position for item in store.events() if item.stream == "recalls" and item.position < 1_000]
    store.forget(positions=[at for at in gone if at not in {item.position for item in store.audit.forgotten()}][:2])
    store.forget(session="bob", questions=folder.name == "two")
    store.backup(folder / "backup", keys=folder / "keys")
