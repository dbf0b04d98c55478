"""Who asked what for which answer, and who relied on a turn: on the pages of the console."""

import pytest

from mnemolog import acting_as

pytestmark = pytest.mark.local


def test_what_others_asked_is_folded_and_a_turn_leads_both_ways(store, console):
    """However many others ask in its scope; where nobody said for which session, the line says so."""
    call = store.session("call", scope="acme/nora")
    with acting_as("agent"):
        bad = call.record("tool", "The kettle is fine.").position
        store.recall("the kettle", scope="acme", asked_in=call, receipt=True)
        store.recall("near it", scope="acme/nora", receipt=True)
    for number in range(30):
        store.recall(f"report {number}", scope="acme/nora", receipt=True)
    with acting_as("agent"):
        answer = call.record("assistant", "Yes: quince.").position
    asked = console.json("/session?id=call")["turns"][1]["asked"]
    assert [item["query"] for item in asked["receipts"]] == ["the kettle", "near it"]
    assert (len(asked["others"]), asked["others"][-1]["query"], asked["left_out"]) == (20, "report 29", 30)
    html = console.get("/session?id=call").text
    assert html.count("not for which session it was") == 1
    assert "Asked meanwhile by others: 30" in html
    page = f"/recall/receipts?turn={bad}"
    shown = [
        "quince" in console.get(page + more).text for more in ("", f"&at={answer - 1}", f"&at={bad - 1}", "&format=csv")
    ]
    assert shown == [True, False, False, True]
    assert [item["query"] for item in console.json(f"/recall/receipts?turn={answer}")["asked"]] == ["the kettle"]


def test_hits_of_a_receipt_are_judged(writer, reader):
    """Yes, no and a better one, by who may record, where the console may write."""
    found = writer.run(writer.store.recall("what does she drink?", 1, mode="text", receipt=True))
    url, hit = f"/recall/receipts/{found.receipt}", found.hits[0].position
    fields = {"receipt": found.receipt, "bad": hit, "better": 4 if hit != 4 else 5}
    shown = ['action="/recall/judge"' in who.get(url).text for who in (writer, reader)]
    assert shown == [True, False]
    assert reader.submit("/recall/judge", fields).status_code == 403
    assert writer.submit("/recall/judge", fields).headers["location"] == f"{url}?judged=yes"
    (judged,) = writer.run(writer.store.audit.judgements())
    assert (judged.good, judged.bad) == ((fields["better"],), (hit,))


def test_the_ways_out_are_forms_on_the_page_of_a_turn(writer, reader):
    """Judge a hit, correct a fact, distrust, forget: each for who has its verb, where the console may write."""
    store, run, turn = writer.store, writer.run, 4
    found = run(store.recall("drink", 3, mode="text", receipt=True))
    other = next(hit.position for hit in found.hits if hit.position != turn)
    run(store.audit.judge(found.receipt, bad=[other]))
    how = {"scope": "acme/alice", "because": [turn], "valid_from": "2020-01-01"}
    heard, _ = (run(store.assert_fact("user/drink", "tea", **how)) for _ in range(2))
    page = f"/recall/receipts?turn={turn}"
    fields = {
        "/recall/judge": {"receipt": found.receipt, "good": turn, "beside": "yes"},
        "/facts/correct": {"key": "user/drink", "of": "acme/alice", "fact": heard.position, "value": "coffee"},
        "/distrust": {"positions": turn, "reason": "she was joking"},
    }
    for who, may in (
        (reader, set()),
        (writer.as_caller("read"), set()),
        (writer.as_caller("read", "record"), {"/recall/judge", "/facts/correct"}),
        (writer.as_caller("read", "record", scope="acme"), {"/facts/correct"}),
        (writer.as_caller("read", "forget", scope="acme"), {"/distrust"}),
        (writer, set(fields)),
    ):
        html = who.get(page).text
        assert {path for path in fields if f'action="{path}"' in html} == may
        assert ("/forgetting?positions=4" in html) == ("/distrust" in may)
        refused = {path for path in fields if who.submit(path, fields[path]).status_code == 403} if not may else set()
        assert refused == (set() if may else set(fields))
    for path in fields:
        assert writer.submit(path, {**fields[path], "next": page}).headers["location"] == page
    (judged,) = run(store.audit.judgements())
    assert (judged.good, judged.bad) == ((turn,), (other,)), "what else was judged of it stays"
    said = run(store.fact_history("user/drink", scope="acme/alice"))
    assert [(fact.value, fact.state) for fact in said] == [
        ("tea", "retracted"),
        ("tea", "retracted"),
        ("coffee", "holds"),
    ]
    assert {fact.valid_from for fact in said} == {heard.valid_from}
    assert turn not in [hit.position for hit in run(store.recall("drink", 3, mode="text")).hits]
    assert "she was joking" in writer.get("/session?id=trip").text
    assert 'action="/distrust/end"' in writer.get(page).text
    wrong = {"fact": said[-1].position, "value": "", "reason": "misheard"}
    assert writer.submit("/facts/correct", fields["/facts/correct"] | wrong).status_code == 303
    assert run(store.fact("user/drink", scope="acme/alice")) is None
    assert writer.submit("/facts/correct", fields["/facts/correct"] | {"fact": turn}).status_code == 400
