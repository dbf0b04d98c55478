"""Receipts of contexts: what was shown to a model, and whether it would differ today."""

import shutil
from hashlib import sha256

import pytest

from mnemolog import MemoryStore
from mnemolog.domain.events import ContextServed
from mnemolog.projections.context.token_counting import ESTIMATE

LONG = "Nothing was decided. " * 40 + "The tram to the ferry costs 4 euros. " + "Nothing was decided. " * 40


def words(text):
    """A caller's tokenizer."""
    return len(text.split())


def letters(text):
    """Another one."""
    return len(text)


@pytest.fixture
def store(folder, clock):
    with MemoryStore.open(folder, model=None, clock=clock) as opened:
        trip = opened.session("trip", scope="acme/ada")
        trip.set_task("Book the ferry")
        trip.set("city", "Porto")
        trip.set("code", "4711", ttl=60)
        trip.note("ask Ada")
        trip.record("user", "We could take the ferry.")
        trip.record("assistant", LONG)
        yield opened


@pytest.fixture
def trip(store):
    return store.session("trip")


def receipts_of(store):
    return [event for event in store.events() if isinstance(event.event, ContextServed)]


def verdicts(audit):
    return [item.verdict.value for item in audit.receipts]


def test_a_receipt_records_what_was_shown(store, trip):
    """Question, budget, counter, position, turns with offsets, names of values and a digest of the text."""
    context = trip.context("What does the ferry cost?", 600, receipt=True)
    (recorded,) = receipts_of(store)
    served = recorded.event
    assert (context.receipt, recorded.stream) == (recorded.position, "recalls")
    assert (served.recall.query, served.recall.head) == ("What does the ferry cost?", context.head)
    assert (served.budget, served.tokens, served.counted_by, served.of) == (600, context.tokens, ESTIMATE, "trip")
    assert tuple(served.turns) == context.positions
    shown = [passage for block in context for passage in block.passages]
    assert list(zip(served.starts, served.ends, strict=True)) == [(item.start, item.end) for item in shown]
    assert (served.has_task, served.values, served.notes) == (True, ["city", "code"], 1)
    assert served.digest == sha256(context.text.encode()).hexdigest()
    assert served.sessions == ["trip"]
    (moment,) = [item for item in store.audit.timeline() if item.position == recorded.position]
    assert "context for 'What does the ferry cost?'" in moment.what


def test_the_audit_says_whether_a_context_reproduces_and_would_differ_today(store, trip, clock):
    """A turn came; a value expired. As of an earlier position it is the same, whatever was recorded since."""
    context = trip.context("ferry", receipt=True)
    audit = store.audit.receipts()
    assert (verdicts(audit), audit.changed_today, audit.sound) == (["reproduces"], 0, True)
    new = trip.record("user", "The ferry, the ferry!")
    (item,) = store.audit.receipts().receipts
    assert (item.verdict.value, item.would_differ_today, item.came, item.went) == (
        *("reproduces", True),
        *((new.position,), ()),
    )
    assert (item.turns, item.session) == (context.positions, "trip")
    trip.rewind(turns=1)
    assert not store.audit.receipts().receipts[0].would_differ_today
    as_of = trip.context("ferry", as_of=context.head, receipt=True).receipt
    trip.record("user", "One more ferry.")
    assert not store.audit.receipts(after=as_of - 1).receipts[0].would_differ_today
    trip.rewind(turns=1)
    clock.advance(seconds=61)
    (item, _) = store.audit.receipts().receipts
    assert (item.verdict.value, item.would_differ_today, item.came, item.went) == ("reproduces", True, (), ())


@pytest.mark.local
def test_a_context_counted_by_the_caller_needs_its_tokenizer_again(store):
    """Without it nothing can be told, and the reason says what to pass."""
    store.context("ferry", 60, tokenizer=words, receipt=True)
    store.context("ferry", 600, receipt=True)
    without = store.audit.receipts()
    assert verdicts(without) == ["cannot-be-told", "reproduces"]
    assert "words counted its tokens: pass that function to" in without.receipts[0].why
    assert verdicts(store.audit.receipts(tokenizer=letters)) == ["cannot-be-told", "reproduces"]
    assert verdicts(store.audit.receipts(tokenizer=words)) == ["reproduces"] * 2


def test_a_receipt_of_another_text_does_not_reproduce(store, trip):
    """Whoever wrote it."""
    trip.context("ferry", receipt=True)
    served = receipts_of(store)[0].event
    fields = {name: getattr(served, name) for name in served.__struct_fields__}
    for change in ({"digest": "0" * 64}, {"turns": served.turns[:1], "starts": [0], "ends": [5], "digest": "0" * 64}):
        forged = ContextServed(**fields | change)
        store.parts.log.appends.transact(lambda tx, forged=forged: tx.append("recalls", forged))
    audit = store.audit.receipts()
    assert verdicts(audit) == ["reproduces", "does-not-reproduce", "does-not-reproduce"]
    assert not audit.sound
    assert audit.receipts[1].why == "the same turns, in another text"
    assert "other turns" in audit.receipts[2].why


@pytest.mark.parametrize("form", ["context/4", "context/99"])
def test_a_receipt_of_another_format_is_read_and_the_audit_says_so(store, trip, form):
    """Its text cannot be built again, but what was shown is in it."""
    trip.context("ferry", receipt=True)
    served = receipts_of(store)[0].event
    fields = {name: getattr(served, name) for name in served.__struct_fields__}
    other = ContextServed(**fields | {"form": form})
    store.parts.log.appends.transact(lambda tx: tx.append("recalls", other))
    item = store.audit.receipts().receipts[-1]
    assert (item.turns, item.query, item.verdict.value) == (tuple(served.turns), "ferry", "cannot-be-told")
    assert item.why == f"it was built as {form}, this mnemolog builds context/5"


@pytest.mark.log_file
def test_forgetting_what_a_context_showed_forgets_its_receipt(folder, tmp_path):
    """Its session or scope, a turn that it showed, a value that it may have shown.

    Also where the question named neither: its digest could be compared with guesses.
    """
    with MemoryStore.open(folder, model=None) as store:
        trip = store.session("trip", scope="acme/ada")
        trip.set("city", "Porto")
        value = store.head().position
        turn = trip.record("user", "We could take the ferry.").position
        other = store.session("other", scope="elsewhere")
        other.record("user", "A ferry elsewhere.")
    for number, wish in enumerate(({"session": "trip"}, {"scope": "acme"}, {"positions": turn}, {"positions": value})):
        with MemoryStore.open(shutil.copytree(folder, tmp_path / str(number)), model=None) as store:
            (store if wish != {"positions": value} else store.session("trip")).context("ferry", receipt=True)
            store.session("other").context("ferry", receipt=True)
            wish["questions"] = False
            assert store.forget(**wish, dry_run=True).counts["context.served.v1"] == 1, wish
            store.forget(**wish)
            audit = store.audit.receipts()
            assert (audit.forgotten, [item.session for item in audit.receipts]) == (1, ["other"]), wish
            assert store.verify(contents=True).sound


def test_an_unrelated_turn_that_is_forgotten_leaves_the_receipt(store, trip):
    """What then differs cannot be told from what was forgotten."""
    extra = trip.record("user", "Nothing to do with it.").position
    trip.context("ferry", roles=["assistant"], receipt=True)
    store.forget(positions=[extra], questions=False)
    audit = store.audit.receipts()
    assert audit.forgotten == 0
    assert verdicts(audit)[0] in ("reproduces", "cannot-be-told")
