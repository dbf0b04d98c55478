"""An example of a request to each operation, in a store that `filled` has filled."""

from typing import Any, Final, NamedTuple

from mnemolog import MemoryStore
from mnemolog.types import AssertFact


class Example(NamedTuple):
    """A request that succeeds."""

    path: str
    json: Any = None
    params: Any = None
    status: int = 200


TRIP: Final = "acme%2Fauthor%2Ftrip"
"""The id of a session as it stands in a path: it holds slashes."""
TRIP_ID: Final = "acme/author/trip"

EXAMPLES: Final[dict[str, Example]] = {
    "sessions": Example("/sessions", params={"scope": "acme", "limit": 10}),
    "start_session": Example("/sessions", {"id": "new", "scope": "acme/alice"}, status=201),
    "find_session": Example(f"/sessions/{TRIP}"),
    "session": Example(f"/sessions/{TRIP}", {}),
    "end_session": Example("/sessions/other/end", {"reason": "done"}, status=204),
    "record": Example(f"/sessions/{TRIP}/turns", {"role": "user", "text": "Where is the train?", "key": "t9"}),
    "record_many": Example("/turns", {"session": TRIP_ID, "messages": [{"role": "user", "content": "Hello"}]}),
    "turns": Example(f"/sessions/{TRIP}/own-turns", params={"limit": 2}),
    "assert_fact": Example("/facts", {"key": "user/city", "value": None, "valid_from": "2026-03", "because": [2]}),
    "retract_fact": Example("/facts/retract", {"fact": 12, "reason": "misheard"}),
    "retract_facts": Example("/facts/retract-made", {"maker": "extractor/1"}),
    "facts": Example("/facts", params={"pattern": "user/*", "scope": "acme"}),
    "fact": Example("/facts/user%2Fcity", params={"scope": "acme/author", "valid_at": "2026-03"}),
    "fact_history": Example("/facts/user%2Fcity/history", params={"scope": "acme/author"}),
    "session.assert_fact": Example(f"/sessions/{TRIP}/facts", {"key": "user/city", "value": "Faro", "corrects": 12}),
    "scopes": Example("/scopes"),
    "agents": Example("/agents"),
    "current": Example("/agents/assistant/session"),
    "switch": Example("/switch", {"reason": "new", "key": "s2", "scope": "acme"}),
    "preview_switch": Example("/switch/preview", {"reason": "branch", "session": TRIP_ID, "to": "twin"}),
    "recall": Example("/recall", {"query": "train", "k": 2, "weights": {"date": 0.5}, "mode": "text"}),
    "context": Example("/context", {"query": "train", "tokens": 200, "roles": ["user"]}),
    "standing": Example("/standing", {"query": "train", "scope": "acme"}),
    "end_standing": Example("/standing/{statement}/end", {"reason": "said on the phone"}),
    "find": Example("/find", {"text": "train", "limit": 1}),
    "head": Example("/head"),
    "position_at": Example("/position", params={"time": "2100-01-01"}),
    "events": Example("/events", params={"after": 2, "limit": 3}),
    "replay": Example("/replay", params={"to": 5}),
    "status": Example("/status"),
    "verify": Example("/verify", {"contents": True}),
    "forget": Example("/forget", {"session": [TRIP_ID], "dry_run": True}),
    "distrust": Example("/distrust", {"positions": [2], "session": [TRIP_ID], "actor": "al", "reason": "forged"}),
    "trust_again": Example("/distrusts/{distrust}/end", {"reason": "it was genuine"}),
    "distrusts": Example("/distrusts"),
    "propose": Example(
        "/proposals", {"act": {"do": "assert_fact", "key": "user/zip", "value": "4000"}, "because": [2]}
    ),
    "proposals": Example("/proposals", params={"state": "open"}),
    "approve": Example("/proposals/approve", {"positions": 24, "edits": {"24": {"value": "x"}}}),
    "decline": Example("/proposals/decline", {"positions": [], "reason": "no"}),
    "backup": Example("/backup", {}),
    "rebuild": Example("/rebuild", {"projection": "views"}),
    "session.at": Example(f"/sessions/{TRIP}/at", params={"when": 4}),
    "session.turns": Example(f"/sessions/{TRIP}/turns", params={"newest_first": "true", "limit": 1}),
    "session.recall": Example(f"/sessions/{TRIP}/recall", {"query": "train"}),
    "session.context": Example(f"/sessions/{TRIP}/context", {"query": "train"}),
    "session.prefetch": Example(f"/sessions/{TRIP}/prefetch", {"query": "train"}),
    "session.prefetch_result": Example(f"/sessions/{TRIP}/prefetch/result", {"wait_s": 0.01}),
    "session.rewind": Example(f"/sessions/{TRIP}/rewind", {"turns": 1}),
    "session.branch": Example(f"/sessions/{TRIP}/branch", {"at": "packed"}),
    "session.lineage": Example(f"/sessions/{TRIP}/lineage"),
    "session.keys": Example(f"/sessions/{TRIP}/keys", params={"pattern": "c*"}),
    "session.all": Example(f"/sessions/{TRIP}/values"),
    "session.clear": Example(f"/sessions/{TRIP}/values", status=204),
    "session.get": Example(f"/sessions/{TRIP}/values/a%2Fb", params={"at": 9}),
    "session.set": Example(f"/sessions/{TRIP}/values/a%2Fb", {"value": None, "ttl": 60}, status=204),
    "session.delete": Example(f"/sessions/{TRIP}/values/city"),
    "session.task": Example(f"/sessions/{TRIP}/task"),
    "session.set_task": Example(f"/sessions/{TRIP}/task", {"description": "book a train", "total": 3}),
    "session.update_task": Example(f"/sessions/{TRIP}/task", {"step": 2}),
    "session.notes": Example(f"/sessions/{TRIP}/notes", params={"with_times": "true"}),
    "session.note": Example(f"/sessions/{TRIP}/notes", {"text": "by the window"}, status=204),
    "session.clear_notes": Example(f"/sessions/{TRIP}/notes", status=204),
    "session.checkpoints": Example(f"/sessions/{TRIP}/checkpoints"),
    "session.checkpoint": Example(f"/sessions/{TRIP}/checkpoints", {"name": "paid"}),
    "session.delete_checkpoint": Example(f"/sessions/{TRIP}/checkpoints/packed", status=204),
    "session.restore": Example(f"/sessions/{TRIP}/checkpoints/packed/restore", {}),
    "audit.timeline": Example("/timeline", params={"session": TRIP_ID, "limit": 4}),
    "audit.event": Example("/events/2"),
    "audit.diff": Example("/diff", params={"before": 3}),
    "audit.export": Example("/export", params={"upto": 5}),
    "audit.subject": Example("/subject", params={"scope": "acme"}),
    "audit.receipts": Example("/receipts", params={"limit": 5}),
    "audit.effects": Example("/turns/2/effects"),
    "audit.judge": Example("/receipts/{receipt}/judgement", {"nothing": True, "by": "auditor"}),
    "audit.judgements": Example("/judgements"),
    "audit.scan_secrets": Example("/secrets"),
    "audit.forgotten": Example("/forgotten"),
    "audit.erasures": Example("/erasures"),
    "audit.pending_erasures": Example("/erasures/pending"),
    "models.list": Example("/models"),
    "models.load": Example("/models/load", {}, status=204),
    "models.activate": Example("/models/{model}/activate", {}),
    "models.drop": Example("/models/models%2Fother", params={"dry_run": "true"}),
    "admin.doctor": Example("/doctor", {"deep": True}),
    "admin.catch_up_views": Example("/catch-up/views", {}),
    "admin.catch_up_vectors": Example("/catch-up/vectors", {}),
    "admin.language": Example("/language"),
    "admin.set_language": Example("/language", {"language": "de"}),
    "admin.redaction": Example("/redaction"),
    "admin.set_redaction": Example("/redaction", {"on": True}),
    "admin.retention": Example("/retention"),
    "admin.set_retention": Example("/retention", {"scope": "acme/old", "max_age": "180d"}),
    "admin.apply_retention": Example("/retention/apply", {"dry_run": True}),
    "admin.hold": Example("/holds", {"scope": "acme/old", "reason": "case 4711"}),
    "admin.lift_hold": Example("/holds/{hold}/lift", {"reason": "it is closed"}),
    "admin.nodes": Example("/nodes"),
    "admin.remove_node": Example("/nodes/0123"),
    "admin.create_token": Example(
        "/tokens", {"actor": "al", "verbs": ["admin"], "scopes": ["acme"], "expires_in": 86_400}
    ),
    "admin.tokens": Example("/tokens"),
    "admin.rotate_token": Example("/tokens/{token}/rotate", {"revoke_old_after": 3_600}),
    "admin.revoke_token": Example("/tokens/{token}"),
    "admin.reapply_erasures": Example("/erasures", {"erasures": []}),
    "admin.quarantine.items": Example("/quarantine"),
    "admin.quarantine.status": Example("/quarantine/status"),
    "admin.quarantine.purge": Example("/quarantine/purge", {"dry_run": True}),
}


def filled(store: MemoryStore) -> dict[str, Any]:
    """Record two sessions with all kinds of memory. Return what the paths of some examples need."""
    trip = store.session(TRIP_ID, scope="acme/author", title="A trip")
    for number, text in enumerate(
        ("The train leaves at nine.", "Which platform?", "Platform four. Always answer in metric.")
    ):
        trip.record("assistant" if number % 2 else "user", text, key=f"t{number}", metadata={"number": number})
    trip.set("city", "Porto")
    trip.set("a/b", {"c": [1, None]})
    trip.set_task("find the platform", total=2)
    trip.note("four")
    trip.checkpoint("packed")
    other = store.session("other", scope="globex")
    other.record("user", "Nothing of this")
    assert trip.assert_fact("user/city", "Porto", maker="extractor/1").position == 12
    store.switch(TRIP_ID, reason="resume", agent="assistant")
    receipt = store.recall("train", receipt=True, mode="text").receipt
    store.context("train", receipt=True)
    store.audit.judge(int(receipt), good=[trip.turns()[0].position])
    store.forget(positions=[other.turns()[0].position], questions=False, reason="asked for")
    ended = store.distrust(actor="nobody", reason="an example").position
    standing = trip.turns()[2].position
    hold = store.admin.hold("acme/older", reason="an example").position
    assert store.propose(AssertFact("user/zip", "1000")).position == 24
    return {
        "hold": hold,
        "receipt": receipt,
        "statement": standing,
        "distrust": ended,
        "token": store.admin.create_token("bob", verbs=["admin"]).token.id,
    }
