"""What the verbs of proposals allow, and that nobody approves their own."""

from contextlib import contextmanager

import httpx2
import pytest

from mnemolog import MemoryStore
from tests.server.serving import server

SECRET = "Ottilie"
ACT = {"do": "assert_fact", "key": "user/name", "value": SECRET}


@pytest.fixture
def tokens(folder):
    """Secrets of tokens by their verbs."""
    with MemoryStore.open(folder, model=None) as store:
        verbs = ("propose", "approve", "record", "read approve", "propose approve")
        return {name: store.admin.create_token(f"may {name}", verbs=name.split()).secret for name in verbs}


@contextmanager
def asking(folder, tokens, *options):
    """Give a function that makes a request with the token of some verbs."""
    with (
        server(folder, "--require-token", *options) as (url, _),
        httpx2.Client(base_url=url, trust_env=False) as client,
    ):

        def ask(verbs, path, body):
            return client.post(f"/v1{path}", json=body, headers={"authorization": f"Bearer {tokens[verbs]}"})

        yield ask


def test_who_may_propose_changes_nothing_and_who_may_approve_does_it(folder, tokens):
    with asking(folder, tokens) as ask:
        made = ask("propose", "/proposals", {"act": ACT})
        assert made.status_code == 200
        position = made.json()["position"]
        for verbs, path, body in (
            ("propose", "/facts", {"key": "k", "value": 1}),
            ("propose", "/proposals/approve", {"positions": position}),
            ("record", "/proposals/approve", {"positions": position}),
            ("record", "/proposals", {"act": ACT}),
            ("approve", "/proposals/approve", {"positions": position, "dry_run": True}),
            ("read approve", "/forget", {"positions": position}),
        ):
            assert ask(verbs, path, body).status_code == 403, (verbs, path)
        done = ask("approve", "/proposals/approve", {"positions": position})
        assert (done.status_code, done.json()["items"][0]["state"], SECRET in done.text) == (200, "approved", False)
    with MemoryStore.open(folder, model=None) as store:
        fact = store.fact("user/name")
        assert (fact.value, fact.proposed_by, fact.actor) == (SECRET, "may propose", "may approve")


@pytest.mark.parametrize(("options", "status"), [([], 400), (["--own-proposals"], 200)])
def test_nobody_approves_what_they_proposed_unless_the_server_allows_it(folder, tokens, options, status):
    with asking(folder, tokens, *options) as ask:
        made = ask("propose approve", "/proposals", {"act": ACT})
        own = ask("propose approve", "/proposals/approve", {"positions": made.json()["position"]})
        assert (own.status_code, "your own" in own.text) == (status, status == 400)
