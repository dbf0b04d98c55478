"""What a caller that is bound to scopes forgets and distrusts: all that it may reach, and nothing outside."""

from pathlib import Path

import msgspec
import pytest

from mnemolog import MemoryStore
from mnemolog.domain.events import ForgetRequested
from mnemolog.domain.forgetting import NOTHING_OUTSIDE

pytestmark = pytest.mark.local

ALICE, BOB = "acme/alice", "acme/bob"
OUTSIDE = "heliotrope"
"""In everything that is outside: names, keys, questions."""
SAID = "555-0175"
PAGES = ("forgetting.md", "adr/0051-what-a-scope-owns.md", "adr/0056-facts-with-two-times.md")


def filled(folder, *, crowded):
    """A store with Alice's session; `crowded` also with what others have that refers to it, or that it refers to."""
    store = MemoryStore.open(folder, model=None, synchronous="NORMAL")
    turn = store.session("alice", scope=ALICE, agent="hers").record("user", f"my number is {SAID}").position
    store.assert_fact("phone", SAID, because=[turn], scope=ALICE)
    store.recall("number", scope=ALICE, receipt=True)
    store.recall("ferry", session="alice", receipt=True)
    made = {}
    if crowded:
        store.session(OUTSIDE, scope=BOB, agent=OUTSIDE).record("user", f"the {OUTSIDE} number")
        store.switch(f"{OUTSIDE}-branch", reason="branch", session="alice", agent=OUTSIDE, scope=BOB)
        made["fact"] = store.assert_fact(f"{OUTSIDE}/phone", SAID, because=[turn], scope=BOB, maker=OUTSIDE).position
        made["root fact"] = store.assert_fact(f"{OUTSIDE}/root", SAID, because=[turn]).position
        made["found"] = store.recall(f"number {OUTSIDE}", receipt=True).receipt
        made["showed"] = store.context(f"number {OUTSIDE}", 500, receipt=True).receipt
        made["above"] = store.recall(f"{OUTSIDE} {SAID}", scope="acme", roles=["tool"], receipt=True).receipt
        made["several"] = store.recall(f"number {OUTSIDE}", scope=[ALICE, BOB], receipt=True).receipt
        made["beside"] = store.recall(f"number {OUTSIDE}", scope=BOB, receipt=True).receipt
    return store, turn, made


def without_places(report):
    """What a report says, without positions, digests, times, ids and the versions of streams that all share."""

    def plain(value, name=""):
        if isinstance(value, dict):
            return {key: plain(item, key) for key, item in value.items()}
        if name in ("position", "digest", "log_id", "request", "requested_at", "asked_at", "positions", "versions"):
            return None
        return [plain(item) for item in value] if isinstance(value, list) else value

    return plain(msgspec.json.decode(report.to_json()))


NAMED = {
    "a turn": lambda turn: {"positions": turn},
    "a session": lambda _: {"session": "alice"},
    "a scope": lambda _: {"scope": ALICE},
    "a turn, and questions stay": lambda turn: {"positions": turn, "questions": False},
}


@pytest.mark.parametrize("named", NAMED)
def test_a_bound_forget_reaches_and_names_nothing_outside(tmp_path, named):
    """Facts of other scopes that rest on it and receipts that found or showed it stay; report, dry run and certificate
    are those of a store that has nothing outside. An unbound request reaches the same things."""
    said = []
    for name in ("alone", "crowded"):
        store, turn, made = filled(tmp_path / name, crowded=name == "crowded")
        with store, store.within(ALICE) as part:
            would = part.forget(**NAMED[named](turn), dry_run=True)
            done = part.forget(**NAMED[named](turn), reason="asked for")
            assert {would.outside, done.outside} == {NOTHING_OUTSIDE}
            assert [item.says for item in done.certificate.remains if item.kind == "scopes"] == [NOTHING_OUTSIDE]
            assert OUTSIDE not in would.to_json() + done.to_json()
            gone = {item.position for item in store.audit.forgotten()}
            assert turn in gone
            assert not gone & {*made.values()}
            said.append((without_places(would), without_places(done)))
            (asked,) = (item.event for item in store.events() if isinstance(item.event, ForgetRequested))
            assert {target.stream for target in asked.targets} <= {"session/alice", f"facts/{ALICE}", "recalls"}
            assert SAID not in part.session("alice").get("phone", "") + part.context("number", 500).text
            assert part.fact("phone") is None
            if made:
                assert store.fact(f"{OUTSIDE}/phone", scope=BOB).value == SAID
                store.forget(**{"positions": turn} | NAMED[named](turn), reason="asked again")
                gone = {item.position for item in store.audit.forgotten()}
                kept = {"above", "beside"} if "questions" in NAMED[named](turn) else set()
                assert {name for name, at in made.items() if at not in gone} == kept
    assert said[0] == said[1]


@pytest.mark.parametrize("forgotten", [False, True])
def test_evidence_outside_does_not_keep_a_fact_inside(tmp_path, forgotten):
    """Whether a turn outside was forgotten changes nothing that a bound caller sees."""
    with MemoryStore.open(tmp_path / "m", model=None) as store:
        turns = [store.session(name, scope=f"acme/{name}").record("user", SAID).position for name in ("alice", "bob")]
        store.assert_fact("phone", SAID, because=turns, scope=ALICE)
        if forgotten:
            store.forget(positions=turns[1])
        with store.within(ALICE) as part:
            assert part.forget(positions=turns[0], dry_run=True).dependents == 1


def test_a_bound_distrust_does_not_reach_facts_outside(tmp_path):
    """Facts outside that rest on the turn hold; those inside do not, and an unbound distrust reaches both."""
    store, turn, _ = filled(tmp_path / "m", crowded=True)
    with store, store.within(ALICE) as part:
        made = part.distrust(positions=turn, reason="a forged page")
        assert (made.covers, [item.position for item in part.distrusts()]) == (1, [made.position])
        assert part.fact("phone") is None
        assert store.fact(f"{OUTSIDE}/phone", scope=BOB).value == SAID
        assert store.fact(f"{OUTSIDE}/root").value == SAID
        assert [item.state for item in store.fact_history(f"{OUTSIDE}/phone", scope=BOB)] == ["holds"]
        wider = store.distrust(positions=turn, reason="a forged page")
        assert store.fact(f"{OUTSIDE}/phone", scope=BOB) is None
        assert [item.position for item in part.distrusts()] == [made.position]
        with pytest.raises(Exception, match=f"position {wider.position} distrusts nothing"):
            part.trust_again(wider.position)
        store.trust_again(wider.position)
        part.trust_again(made.position)
        assert part.fact("phone").value == store.fact(f"{OUTSIDE}/phone", scope=BOB).value == SAID


@pytest.mark.parametrize("page", PAGES)
def test_pages_say_it_in_the_same_sentence(page):
    """Once, as reports and certificates do."""
    assert " ".join((Path(__file__).parents[2] / "docs" / page).read_text().split()).count(NOTHING_OUTSIDE) == 1
