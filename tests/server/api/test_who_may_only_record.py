"""What a token that may only record is shown: nothing that others have said."""

from datetime import timedelta
from typing import get_args, get_origin

import httpx2
import msgspec
import pytest

from mnemolog import MemoryStore
from mnemolog.domain.tokens import VERBS
from mnemolog.server.http.routes import ROUTES
from mnemolog.server.http.serialization import CONTENT, Answers
from tests.server.serving import server

_STRUCTURE = """
id session agent scope position version role key said_at recorded_at changed_at created_at checkpoint items next
stale value task_changes turns_hidden receipt good bad nothing by judged_at unusable
valid_from assumed until checked_at state assertions because maker retracted actor reason distrusted redacted
proposal proposed_by
"""
STRUCTURE = frozenset(_STRUCTURE.split())
"""Fields of answers to writes that are no content."""
SECRET = "Ottilie"


def fields_of(kind):
    """The names of all fields of a type of answers."""
    for part in get_args(kind):
        yield from fields_of(part)
    found = get_origin(kind) or kind
    if isinstance(found, type) and issubclass(found, msgspec.Struct):
        for field in msgspec.structs.fields(kind):
            yield field.name
            if field.name not in CONTENT and field.name != "stale":
                yield from fields_of(field.type)


@pytest.mark.parametrize("operation", [one for one in ROUTES if one.verb == "record"], ids=lambda one: one.name)
def test_every_field_of_an_answer_to_a_write_is_known_as_content_or_not(operation):
    for kind in Answers(operation).types:
        assert set(fields_of(kind)) <= STRUCTURE | CONTENT.keys()


@pytest.fixture
def secrets(folder):
    """Tokens with one verb each, and one for a scope, of a store in which others have said something."""
    with MemoryStore.open(folder, model=None) as store:
        session = store.session("trip", title=f"{SECRET}'s trip", scope="acme", agent="acme/concierge")
        session.record("user", f"My name is {SECRET}.", speaker=SECRET, key="m1")
        session.set("name", SECRET)
        session.assert_fact(f"user/{SECRET}/city", SECRET)
        session.note(f"{SECRET} is vegetarian")
        session.set_task(f"book a table for {SECRET}", step=1, total=3)
        session.checkpoint(f"before {SECRET}")
        session.note("changed since")
        create = store.admin.create_token
        made = {verb: create(verb, verbs=[verb]).secret for verb in VERBS}
        return made | {"of a scope": create("ann", verbs=["metrics", "admin"], scopes=["acme"]).secret}


def test_who_may_only_record_is_shown_nothing_that_others_have_said(folder, secrets):
    """Neither in answers to writes nor in refusals; previews need `read`."""
    session = "/v1/sessions/trip"
    asked = [
        ("PUT", session, {}),
        ("PUT", session, {"title": "another"}),
        ("POST", "/v1/switch", {"to": "trip", "agent": "acme/concierge", "reason": "resume"}),
        ("POST", f"{session}/branch", {}),
        ("PATCH", f"{session}/task", {"step": 2}),
        ("POST", f"{session}/turns", {"role": "user", "text": "Two people.", "key": "m2"}),
        ("POST", f"{session}/turns", {"role": "user", "text": "Another one.", "key": "m1"}),
        ("POST", "/v1/turns", {"messages": [{"session": "trip", "role": "user", "content": "At nine."}]}),
        ("POST", f"{session}/checkpoints", {"name": "later"}),
        ("POST", f"{session}/checkpoints/before%20{SECRET}/restore", {}),
        ("POST", f"{session}/facts", {"key": "user/city", "value": "Porto"}),
        ("POST", "/v1/facts", {"key": "user/city", "value": "Porto", "scope": "acme", "corrects": 4}),
        ("PUT", f"{session}/values/city", {"value": "Porto"}),
        ("POST", "/v1/sessions/tripp/turns", {"role": "user", "text": "Who is close?"}),
    ]
    previews = [
        ("POST", f"{session}/checkpoints/later/restore", {"dry_run": True}),
        ("POST", "/v1/switch/preview", {"to": "trip", "agent": "acme/concierge", "reason": "resume"}),
        ("POST", f"{session}/rewind", {"turns": 1, "dry_run": True}),
    ]
    with (
        server(folder, "--require-token") as (url, _),
        httpx2.Client(
            base_url=url, trust_env=False, timeout=60, headers={"authorization": f"Bearer {secrets['record']}"}
        ) as client,
    ):
        for method, path, body in asked:
            answer = client.request(method, path, json=body)
            said = answer.text.replace(f"before {SECRET}", "") if "restore" in path else answer.text
            assert SECRET not in said, (path, answer.text)
            assert answer.status_code < 500
            assert "tripp" not in path or "closest" not in answer.text.replace('"closest":[]', "")
        for method, path, body in previews:
            refused = client.request(method, path, json=body)
            assert (refused.status_code, "read" in refused.json()["detail"]) == (403, True), path


def test_metrics_have_a_verb_of_their_own_and_are_not_for_a_part_of_the_store(folder, secrets):
    with server(folder, "--require-token") as (url, _):
        for name, secret in secrets.items():
            answer = httpx2.get(f"{url}/metrics", headers={"authorization": f"Bearer {secret}"}, trust_env=False)
            assert answer.status_code == (200 if name == "metrics" else 403), name


def test_nobody_makes_a_token_that_may_do_more(folder, secrets):
    with server(folder, "--require-token", "--write") as (url, _):
        headers = {"authorization": f"Bearer {secrets['admin']}"}
        with httpx2.Client(base_url=url, headers=headers, trust_env=False, timeout=60) as client:
            for verb in VERBS:
                made = client.post("/v1/tokens", json={"actor": "eve", "verbs": ["admin", verb]})
                assert made.status_code == (200 if verb == "admin" else 403), verb
                page = client.post("/tokens", data={"actor": "eve", "verb": [verb]}, headers={"origin": url})
                assert page.status_code == (200 if verb == "admin" else 403), verb
            assert client.post("/v1/tokens", json={"actor": "eve"}).status_code == 403  # By default: read and record.
            for verb in VERBS:
                rotated = client.post(f"/v1/tokens/{secrets[verb].split('_')[1]}/rotate", json={})
                assert rotated.status_code == (200 if verb == "admin" else 403), verb


def test_a_token_ends_after_90_days_and_shows_when_it_was_last_used(folder, secrets):
    with server(folder, "--require-token") as (url, _):
        for verb, status in (("metrics", 200), ("record", 403)):
            headers = {"authorization": f"Bearer {secrets[verb]}"}
            assert httpx2.get(f"{url}/metrics", headers=headers, trust_env=False).status_code == status
        with MemoryStore.open(folder, model=None) as store:  # The first use is written down at once.
            used = {token.actor for token in store.admin.tokens() if token.last_used_at}
        assert "metrics" in used
    with MemoryStore.open(folder, model=None) as store:  # The others within a minute, and when the server stops.
        tokens = {token.actor: token for token in store.admin.tokens()}
    assert tokens["record"].last_used_at >= tokens["record"].created_at
    assert all(round((token.expires_at - token.created_at) / timedelta(days=1)) == 90 for token in tokens.values())
    assert tokens["metrics"].last_used_at >= tokens["metrics"].created_at
    assert tokens["forget"].last_used_at is None
