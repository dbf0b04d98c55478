"""Secrets are replaced before they are recorded, on every way into the log."""

import json
from contextlib import closing
from functools import partial

import msgspec
import pytest

from mnemolog import DuplicateKey, InvalidInput, MemoryStore, connect, import_log
from mnemolog.adapters.importers import import_files
from mnemolog.adapters.importers.transcripts import Transcripts
from mnemolog.adapters.support.framework_sessions import reconcile, rewind_to_transcript
from mnemolog.adapters.support.graph_checkpoints import Threads, Typed
from mnemolog.adapters.support.items import Items
from mnemolog.domain.threads import Blob, unpack
from tests.e2e.transcripts.written import Claude
from tests.secret_forms import forms, texts
from tests.support import nothing_written, read_all
from tests.through_http import Served

pytestmark = pytest.mark.local
SECRET = "ghp_" + "aB3xY7" * 6
SAID = f"the token is {SECRET} for now"
STORED = "the token is [REDACTED:github] for now"


def holds_secret(store):
    """The positions of the log that hold the secret, packed bytes included."""

    def text(event):
        if isinstance(event, msgspec.Struct):
            return " ".join(text(getattr(event, name)) for name in event.__struct_fields__)
        if isinstance(event, list):
            return " ".join(map(text, event))
        return unpack(event).decode("latin-1") if isinstance(event, Blob) else repr(event)

    return [
        item.position
        for item in read_all(store.parts.log)
        if SECRET in text(item.event) + item.stream + (item.key or "")
    ]


def write_everything(store, folder):
    """Every way to write, each with a secret in all that is content."""
    trip = store.session("trip", title=SAID)
    function = {"name": "curl", "arguments": json.dumps({"h": f"x\n{SECRET}"})}
    call = {"id": "c1", "type": "function", "function": function}
    trip.record("user", SAID, key="a", speaker=f"Ada {SECRET[:80]}", metadata={"where": [SECRET], SECRET: 1})
    trip.record({"role": "assistant", "content": SAID, "tool_calls": [call]})
    trip.record({"role": "tool", "tool_call_id": "c1", "content": SAID})
    store.record_many([{"role": "user", "content": SAID, "session": "trip"}])
    trip.set("found", {"deep": [SAID]})
    trip.note(SAID)
    trip.set_task(SAID)
    trip.update_task(status=SECRET)
    trip.checkpoint(f"before {SECRET}", description=SAID)
    store.retract_fact(trip.assert_fact("tokens/github", {"value": SECRET}), reason=SAID)
    store.trust_again(store.distrust(maker="gossip", reason=SAID).position, reason=SAID)
    receipt = store.recall(SAID, speakers=[SECRET], scope=SECRET, metadata={"where": SECRET}, receipt=True).receipt
    trip.context(SAID, 200, receipt=True)
    store.audit.judge(receipt, nothing=True, by=SECRET)
    trip.branch("twig", title=SAID)
    store.switch("next", reason="new", title=SAID)
    store.end_session("next", reason=SAID)
    store.forget(positions=[trip.turns()[0].position], reason=SAID)
    reconcile(trip, [{"role": "user", "content": f"{SAID}!"}])
    with closing(Threads(store)) as threads:
        graph = Typed("msgpack", msgspec.msgpack.encode({"messages": [SAID]}))
        threads.checkpoint(
            "t", "", "1", parent=None, checkpoint=graph, metadata=graph, channels={"m": lambda: graph}, changed="m"
        )
        threads.write("t", "", "1", "task", "", [(0, "m", graph)])
    with closing(Items(store)) as items, items.batch() as batch:
        batch.put(("users",), "ada", {"token": SECRET})
    lines = folder / "lines.jsonl"
    lines.write_text(json.dumps({"session": "old", "role": "user", "content": SAID, "title": SAID}) + "\n")
    import_files(store, lines)
    talk = Claude(folder / "projects", "a" * 8 + "-0000-4000-8000-000000000001")
    talk.say(SAID)
    with Transcripts(store) as transcripts:
        transcripts.catch_up([talk.path])


def test_no_secret_gets_into_the_log_on_any_way(folder, tmp_path):
    """The setting is one of the store: a handle that was open before, and a client of a server, obey it, too."""
    with MemoryStore.open(folder, model=None, receipts=True) as store:
        with MemoryStore.open(folder, model=None) as other:
            assert other.admin.set_redaction(True) is True
            assert (other.admin.set_redaction(True), store.admin.redaction()) == (False, True)
        write_everything(store, tmp_path)
        with closing(Served(store)) as served:
            with connect(served.url) as client:
                assert client.record("trip", "user", SAID).text == STORED
            assert holds_secret(store) == []
            assert store.audit.scan_secrets() == []
            assert store.verify(contents=True).sound
            assert any(item.event.redacted == {"github": 3} for item in read_all(store.parts.log))


def test_without_it_everything_is_recorded_as_it_is(folder, tmp_path):
    """Then a scan finds each event that holds a secret, shows none, and ends in the command that forgets them."""
    with MemoryStore.open(folder, model=None, receipts=True) as store:
        write_everything(store, tmp_path)
        with closing(Threads(store)) as threads:
            threads.write("t", "", "1", "task", "", [(0, SECRET, Typed("json", b"1"))])
        found, expected = store.audit.scan_secrets(), holds_secret(store)
        assert {secret.position for secret in found} >= set(expected)
        assert len(expected) > 20
        assert SECRET not in found.to_json()
        assert {secret.length for secret in found} == {40}
        assert store.audit.scan_secrets(after=expected[-1]) == []


def test_a_turn_says_what_was_replaced_and_a_retry_is_the_same_turn(folder):
    """With the same key and the same secret; another text with that key is refused. No turn is dropped."""
    with MemoryStore.open(folder, model=None, redact=True) as store:
        trip = store.session("trip", title=SAID)
        first = trip.record("user", SAID, key="a", metadata={"m": SECRET})
        assert (first.text, first.redacted) == (STORED, {"github": 2})
        assert trip.record("user", SAID, key="a", metadata={"m": SECRET}) == first
        with pytest.raises(DuplicateKey):
            trip.record("user", f"{SAID}?", key="a", metadata={"m": SECRET})
        for _ in range(2):
            store.switch("next", reason="new", title=SAID)
            assert (store.session("trip", title=SAID).title, trip.branch("twig", title=SAID).title) == (STORED, STORED)


def test_what_was_recorded_is_recognised_when_it_comes_again(folder, tmp_path):
    """By imports, transcripts, reconcile and rewinds, though the log has another text than the file."""
    with MemoryStore.open(folder, model=None, redact=True) as store:
        write_everything(store, tmp_path)
        with nothing_written(store):
            assert import_files(store, tmp_path / "lines.jsonl").already_there == 1
            trip, transcript = store.session("trip"), [{"role": "user", "content": f"{SAID}!"}]
            assert reconcile(trip, transcript) == []
            talk = next((tmp_path / "projects").rglob("*.jsonl"))
            with Transcripts(store) as transcripts:
                assert transcripts.catch_up([talk]).recorded == 0
        seen = [{"role": turn.role, "content": turn.text.replace("[REDACTED:github]", SECRET)} for turn in trip.turns()]
        assert rewind_to_transcript(trip, seen) == 0


def test_a_secret_in_a_name_is_refused_and_what_has_one_can_be_deleted(bare):
    """Content is found by its name, so a name is not changed. The error does not quote it."""
    bare.session(SECRET).set(SECRET, 1)
    bare.admin.set_redaction(True)
    with nothing_written(bare):
        trip = bare.session(SECRET)
        for write in (
            lambda: bare.session(f"{SECRET}2"),
            lambda: bare.session("x", scope=SECRET),
            lambda: trip.set(f"{SECRET}2", 1),
            lambda: trip.assert_fact(SECRET, 1),
            lambda: trip.record("user", "hi", key=SECRET),
            *(partial(bare.distrust, **{by: SECRET}, reason="leaked") for by in ("actor", "maker", "session")),
            lambda: bare.admin.create_token(SECRET, verbs=["read"]),
            lambda: bare.admin.create_token("ops", verbs=["read"], scopes=[f"acme/{SECRET}"]),
        ):
            with pytest.raises(InvalidInput, match=r"holds a secret \(github\)") as refused:
                write()
            assert SECRET not in str(refused.value)
    trip.delete(SECRET)
    trip.record("user", SAID)
    trip.end()
    assert bare.forget(session=SECRET).complete


def test_what_records_and_what_scans_find_the_same(folder):
    """In each text of `tests/unit/secrets`: what a store replaces is found in a log that replaces nothing."""
    said = [form.text for form in (*forms("replaced"), *forms("not_found"))] + texts("untouched")
    said = [text for text in said if "[REDACTED:" not in text]  # A mark is counted, whoever wrote it.
    with MemoryStore.open(folder, model=None) as store:
        recorded = store.session("plain").record_many([{"role": "user", "content": text} for text in said])
        found = {turn.position: {} for turn in recorded}
        for secret in store.audit.scan_secrets():
            kinds = found[secret.position]
            kinds[secret.kind] = kinds.get(secret.kind, 0) + 1
        store.admin.set_redaction(True)
        replaced = store.session("redacted").record_many([{"role": "user", "content": text} for text in said])
        assert [turn.redacted for turn in replaced] == list(found.values())


def test_the_setting_is_chosen_once_and_not_turned_off_by_an_option(folder):
    """`redact=True` turns it on in a store that exists. Only the administrator turns it off."""
    MemoryStore.open(folder, model=None).close()
    with MemoryStore.open(folder, model=None, redact=True) as store:
        head = store.head()
    for how in ({"redact": True}, {"redact": True, "read_only": True}, {}):
        with MemoryStore.open(folder, model=None, **how) as store:
            assert (store.head(), store.admin.redaction()) == (head, True)
    with pytest.raises(InvalidInput, match=r"store\.admin\.set_redaction\(False\) ends it"):
        MemoryStore.open(folder, model=None, redact=False)


def test_a_function_is_applied_too_in_the_process_that_gives_it(folder):
    """It is asked once for a text, though a unit of work may run twice. If it fails, nothing is written."""
    asked = []

    def names(text):
        asked.append(text)
        return text.replace("Ada", "[REDACTED:person]")

    with MemoryStore.open(folder, model=None, redact=names) as store:
        turn = store.session("trip").record("user", f"Ada: {SAID}", key="a")
        assert (turn.text, turn.redacted) == (f"[REDACTED:person]: {STORED}", {"person": 1, "github": 1})
        assert store.session("trip").record("user", f"Ada: {SAID}", key="a") == turn
        assert asked.count(f"Ada: {STORED}") == 1
    with MemoryStore.open(folder, model=None) as store:
        assert store.session("trip").record("user", f"Ada: {SAID}").text == f"Ada: {STORED}"
    with (
        MemoryStore.open(folder, model=None, redact=lambda _: 1 // 0) as store,
        nothing_written(store),
        pytest.raises(ZeroDivisionError),
    ):
        store.session("trip").note("hi")


def test_copies_of_a_log_keep_its_bytes(folder, tmp_path):
    """An import of an export is the same log, digest for digest; what is recorded there is redacted."""
    with MemoryStore.open(folder, model=None) as store:
        store.session("trip").record("user", SAID)
        store.admin.set_redaction(True)
        store.audit.export(tmp_path / "log.jsonl")
        import_log(tmp_path / "log.jsonl", tmp_path / "copy", keys=folder)
        with MemoryStore.open(tmp_path / "copy", model=None) as copied:
            assert copied.head() == store.head()
            assert copied.session("trip").record("user", SAID).text == STORED


def test_the_command_line_scans_and_switches(run, tmp_path):
    """What it prints holds no secret, and the last line is the command that shows what forgetting takes."""
    memory = tmp_path / "memory"
    run("init", memory)
    run("record", memory, "trip", SAID, "--start")
    scanned = run("scan-secrets", memory)
    assert SECRET not in scanned.stdout
    assert "1 secret\n" in scanned.stdout
    forget = scanned.stdout.splitlines()[-1].strip("`").split()
    assert forget[:2] == ["mnemolog", "forget"]
    assert "1 event would be forgotten: 1 turn" in run(*forget[1:]).stdout
    assert [item["kind"] for item in run("scan-secrets", memory, "--json").json] == ["github"]
    assert run("redaction", memory).stdout.startswith("off: secrets are not replaced")
    assert run("redaction", memory, "--on", "--json").json == {"redaction": True, "changed": True}
    run("record", memory, "trip", SAID)
    assert [item["kind"] for item in run("scan-secrets", memory, "--json").json] == ["github"]
