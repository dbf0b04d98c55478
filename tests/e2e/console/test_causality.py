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
