"""Tokens of a server: created and revoked as events, checked against a digest, never stored."""

import getpass
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from mnemolog import DuplicateKey, InvalidInput, LimitExceeded, MemoryStore, acting_as, import_log
from mnemolog.domain.request import request_key
from mnemolog.domain.scope import SCOPES_MAX
from mnemolog.domain.tokens import PREFIX, TOKENS_STREAM, ends_soon
from mnemolog.domain.values import to_datetime
from mnemolog.server.http.authentication import find_token
from tests.support import nothing_written

NOW = datetime(2024, 1, 2, tzinfo=UTC)


def holder(store, secret):
    """The token that a server finds for what a caller sends."""
    return find_token(store.parts.tokens.known(), secret, now=to_datetime(store.parts.clock.now()))


@pytest.mark.local
def test_a_token_is_created_shown_once_and_found_by_its_secret(store):
    """The list has everything but the secret."""
    with acting_as("root"):
        created = store.admin.create_token("alice", verbs=["record", "read"], scopes=["acme/alice"])
    assert created.secret.startswith(f"{PREFIX}{created.token.id}_")
    assert len(created.secret) > 60
    (token,) = store.admin.tokens()
    assert token == created.token == holder(store, created.secret)
    assert (token.actor, token.verbs, token.scopes) == ("alice", ("read", "record"), ("acme/alice",))
    assert (token.created_by, token.revoked_at, token.last_used_at) == ("root", None, None)
    assert timedelta(days=89) < token.expires_at - token.created_at <= timedelta(days=90)


def test_an_invalid_token_or_a_part_of_one_finds_no_holder(store):
    """Whatever is sent, no error and no caller. Two tokens for one actor have two ids and two secrets."""
    one, two = store.admin.create_token("alice"), store.admin.create_token("alice")
    assert one.secret != two.secret
    assert [token.id for token in store.admin.tokens()] == [one.token.id, two.token.id]
    mixed = two.secret.replace(two.token.id, one.token.id)
    parts = (one.token.id, one.secret[:-1], one.secret + "x", one.secret.upper(), mixed)
    for sent in (*parts, "", "mnemolog_", "mnemolog_0123_x", "x" * 100_000, "\udc80", "mnemolog_ä_ö", "_", " "):
        assert holder(store, sent) is None, sent[:50]


@pytest.mark.local
def test_a_revoked_token_is_refused_with_the_name_of_who_revoked_it(store):
    """Revoking it again changes nothing."""
    created = store.admin.create_token("alice")
    with acting_as("root"):
        revoked = store.admin.revoke_token(created.token.id)
    with nothing_written(store):
        assert store.admin.revoke_token(created.secret) == revoked
    assert (revoked.revoked_by, revoked.revoked_at is None) == ("root", False)
    assert holder(store, created.secret) is None


@pytest.mark.local
@pytest.mark.parametrize("lasts", [timedelta(days=30), None])
def test_a_rotated_token_has_a_successor_and_ends_after_a_time(store, clock, lasts):
    """With the same rights, for as long again. Until then both are valid, and the old one can still be revoked."""
    clock.step = 0
    old = store.admin.create_token("alice", verbs=["read"], scopes=["acme"], expires_in=lasts)
    clock.advance(seconds=20 * 86_400)
    with acting_as("root"):
        new = store.admin.rotate_token("alice", revoke_old_after=timedelta(hours=2))
    first, second = store.admin.tokens()
    assert (new.token, new.replaces) == (second, first)
    assert (second.actor, second.verbs, second.scopes) == ("alice", ("read",), ("acme",))
    assert second.expires_at == (lasts and second.created_at + lasts)
    assert (first.replaced_at, first.revoked_by) == (second.created_at, "root")
    assert (ends_soon(first, first.replaced_at), store.audit.erasures()[0].token) == (False, first.id)
    clock.advance(seconds=7_199)
    assert [holder(store, made.secret) for made in (old, new)] == [first, second]
    clock.advance(seconds=1)
    assert [holder(store, made.secret) for made in (old, new)] == [None, second]
    newest = store.admin.rotate_token(second, revoke_old_after=timedelta(0))
    assert (newest.replaces.revoked_at, holder(store, new.secret)) == (newest.token.created_at, None)
    last = store.admin.rotate_token(newest.secret)
    assert (last.replaces.expires_at, holder(store, newest.secret)) == (
        last.token.created_at + timedelta(hours=1),
        last.replaces,
    )
    assert store.admin.revoke_token(newest.token).revoked_at == last.token.created_at
    assert holder(store, newest.secret) is None
    assert "revoked from " in [*store.audit.timeline()][2].what


def test_of_two_rotations_at_once_one_is_refused(store, folder):
    """So there is one successor; what cannot have one is refused as well."""
    old = store.admin.create_token("alice", expires_in=None).token

    def rotate(_):
        with MemoryStore.open(folder, model=None) as other, suppress(InvalidInput):
            return other.admin.rotate_token(old.id)

    with ThreadPoolExecutor(4) as pool:
        assert len([made for made in pool.map(rotate, range(4)) if made]) == 1
    assert len(store.admin.tokens()) == 2
    store.admin.create_token("alice")
    gone = store.admin.revoke_token(store.admin.create_token("bob").token)
    for named, after, why in (
        (old, 1, "revoked or replaced"),
        ("alice", 1, "has 2 valid tokens"),
        ("bob", 1, "no token has the id 'bob'"),
        (gone, 1, "has expired, or was revoked"),
        (store.admin.create_token("carol").token, -1, "revoke_old_after: a token cannot end before now"),
    ):
        with pytest.raises(InvalidInput, match=why):
            store.admin.rotate_token(named, revoke_old_after=timedelta(hours=after))


def test_a_revocation_by_another_process_is_noticed_at_once(store, folder):
    """A store that has the tokens in memory asks whether there are new events of tokens."""
    created = store.admin.create_token("alice")
    assert holder(store, created.secret) is not None
    with MemoryStore.open(folder, model=None) as other:
        other.admin.revoke_token(created.token.id)
    assert holder(store, created.secret) is None


def test_a_token_expires_on_the_minute(store, clock):
    """It is valid until then, and not at that moment."""
    clock.step = 0
    created = store.admin.create_token("alice", expires_in=timedelta(days=30))
    clock.advance(seconds=30 * 86_400 - 1)
    assert holder(store, created.secret) is not None
    clock.advance(seconds=1)
    assert holder(store, created.secret) is None


def test_checking_a_token_asks_the_log_one_question(store, monkeypatch):
    """However many tokens there are, and whatever was recorded meanwhile."""
    secrets = [store.admin.create_token(f"user-{number}").secret for number in range(50)]
    store.session("trip").record("user", "hello")
    reading, asked = store.parts.log.engine.reading, []

    @contextmanager
    def counted():
        with reading() as reads:
            yield SimpleNamespace(version=lambda stream: asked.append(stream) or reads.version(stream))

    monkeypatch.setattr(store.parts.log.engine, "reading", counted)
    assert holder(store, secrets[-1]).actor == "user-49"
    assert asked == [TOKENS_STREAM]


def test_an_unknown_token_costs_the_same_work_as_a_wrong_one(store, monkeypatch):
    """Each is hashed and compared once, in constant time."""
    created = store.admin.create_token("alice")
    compared = []
    monkeypatch.setattr(
        "mnemolog.server.http.authentication.hmac.compare_digest",
        lambda one, two: compared.append((len(one), len(two))) or one == two,
    )
    for sent in (created.secret, created.secret[:-4] + "wxyz", "mnemolog_000000000000_abc", "anything"):
        holder(store, sent)
    assert compared == [(32, 32)] * 4


REFUSED = [
    ({"actor": ""}, "actor"),
    ({"actor": "a\nb"}, "actor"),
    ({"verbs": []}, "verbs"),
    ({"verbs": "read"}, "verbs"),
    ({"verbs": ["write"]}, "verbs"),
    ({"scopes": "acme"}, "scopes"),
    ({"scopes": [""]}, "scopes"),
    ({"scopes": ["acme", "/x"]}, "scope"),
    ({"expires_in": timedelta(0)}, "expires_in"),
    ({"expires_in": timedelta(days=10**8)}, "expires_in"),
]


@pytest.mark.local
def test_a_token_that_makes_no_sense_is_refused(store):
    """An empty scope too: an empty variable of a script must not mean everything."""
    for about, field in REFUSED:
        with pytest.raises(InvalidInput, match=field):
            store.admin.create_token(**{"actor": "alice"} | about)
    assert store.head().position == 0


def test_a_token_has_a_limited_number_of_scopes_and_none_within_another(store):
    """`acme` covers `acme/alice`."""
    created = store.admin.create_token("alice", scopes=["acme/alice", "acme", "other"])
    assert created.token.scopes == ("acme", "other")
    with pytest.raises(LimitExceeded, match="scopes"):
        store.admin.create_token("alice", scopes=[f"s{number}" for number in range(SCOPES_MAX + 1)])


def test_an_unknown_id_is_refused_without_repeating_what_was_pasted(store):
    """It may be a token of another store."""
    other = "mnemolog_0123456789ab_" + "s" * 43
    with pytest.raises(InvalidInput, match="no token") as refused:
        store.admin.revoke_token(other)
    assert "ssss" not in str(refused.value)
    with pytest.raises(InvalidInput, match="'0123'"):
        store.admin.revoke_token("0123")


@pytest.mark.local
def test_a_repeated_request_to_create_a_token_is_refused(store):
    """Its secret cannot be shown a second time, and a second token would be one too many."""
    with request_key("k1"):
        store.admin.create_token("alice")
        with pytest.raises(DuplicateKey):
            store.admin.create_token("alice")
    assert len(store.admin.tokens()) == 1


@pytest.mark.log_file
def test_the_secret_is_in_no_file_no_repr_no_export_and_no_event(store, folder, tmp_path):
    """The store has a digest of it; the copy of a log cannot be used to call a server."""
    created = store.admin.create_token("alice", scopes=["acme"])
    part = created.secret[-30:]
    store.audit.export(tmp_path / "log.jsonl")
    shown = [repr(created), str(created), repr(store.admin.tokens())]
    shown += [str(moment) for moment in store.audit.timeline()] + [repr(event) for event in store.events()]
    assert not [text for text in shown if part in text]
    assert "alice" in repr(created)
    assert part in created.to_json()
    store.close()
    for path in (*folder.rglob("*"), tmp_path / "log.jsonl"):
        assert not path.is_file() or part.encode() not in path.read_bytes(), path


@pytest.mark.log_file
def test_an_import_has_the_tokens_of_the_export(store, tmp_path):
    """Whoever had a token of the log has one of its copy."""
    created = store.admin.create_token("alice", expires_in=None)
    store.audit.export(tmp_path / "log.jsonl")
    import_log(tmp_path / "log.jsonl", tmp_path / "copy")
    with MemoryStore.open(tmp_path / "copy", model=None) as copy:
        assert holder(copy, created.secret) == created.token


@pytest.mark.local
def test_the_timeline_tells_of_tokens(store):
    """Who created one for whom, and who revoked it."""
    with acting_as("root"):
        created = store.admin.create_token("alice", scopes=["acme"], expires_in=timedelta(days=1)).token
        store.admin.revoke_token(created.id)
    made, gone = store.audit.timeline()
    until = created.expires_at.isoformat()
    assert made.what == f"token {created.id} created for alice: read, record in acme, until {until}"
    assert gone.what == f"token {created.id} revoked"
    assert {made.actor, gone.actor} == {"root"}


def test_tokens_in_other_streams_are_no_tokens(store):
    """The stream of tokens alone decides."""
    created = store.admin.create_token("alice")
    event = next(iter(store.events())).event
    log = store.parts.log
    log.appends.transact(
        lambda tx: tx.append("recalls", type(event)(**{"id": "x", "acts_as": "y", "verbs": [], "digest": event.digest}))
    )
    assert [token.id for token in store.admin.tokens()] == [created.token.id]
    assert find_token({}, created.secret, now=NOW) is None


def test_the_command_line_creates_lists_and_revokes_tokens(store, folder, run):
    """Standard output has the token alone, for a script; what it means is on standard error."""
    made = run(
        *("token", "create", folder, "--actor", "alice", "--scope", "acme/a", "--scope", "acme/b"),
        *("--verb", "read", "--expires", "30d"),
    )
    secret = made.stdout.strip()
    token = holder(store, secret)
    assert made.stderr == f"note: token {token.id} of alice; keep it now, because it cannot be shown again\n"
    assert (token.actor, token.scopes, token.verbs) == ("alice", ("acme/a", "acme/b"), ("read",))
    assert token.expires_at - token.created_at < timedelta(days=30, minutes=1)
    listed = run("token", "list", folder).stdout
    assert "alice" in listed
    assert secret not in listed
    assert run("token", "revoke", folder, token.id).stdout == f"token {token.id} of alice is revoked\n"
    assert "revoked" in run("token", "list", folder).stdout
    assert run("token", "list", folder, "--json").json[0]["revoked_at"]
    created = run("token", "create", folder, "--actor", "bob", "--json").json
    assert holder(store, created["secret"]).verbs == ("read", "record")
    rotated = run("token", "rotate", folder, "bob", "--revoke-old-after", "2d")
    assert holder(store, rotated.stdout.strip()).actor == "bob"
    assert f"the token {created['token']['id']}, which it replaces, ends " in rotated.stderr
    assert run("token", "rotate", folder, "bob", "--revoke-old-after", "0m", "--json").json["replaces"]["revoked_at"]


def unknown_user():
    raise KeyError("getpwuid(): uid not found: 4711")


@pytest.mark.parametrize("user", [lambda: "ada", lambda: "", lambda: "a\nb", lambda: "x" * 5_000, unknown_user])
def test_the_command_line_acts_as_the_user_of_this_machine(store, folder, run, monkeypatch, user):
    """A name that is no valid actor becomes `local`; so does none, as where the user id is in no password file."""
    actor = "ada" if user is not unknown_user and user() == "ada" else "local"
    monkeypatch.setattr(getpass, "getuser", user)
    created = run("token", "create", folder, "--actor", "bob", "--json").json["token"]
    revoked = run("token", "revoke", folder, created["id"], "--json").json
    assert (created["created_by"], revoked["revoked_by"]) == (actor, actor)
    assert [event.actor for event in store.audit.timeline()] == [actor, actor]


def test_the_command_line_refuses_what_makes_no_sense(store, folder, run):
    """Nothing is created."""
    for options, said in (
        (["--expires", "soon"], "is not a duration"),
        (["--verb", "write"], "none of read, record, propose, approve, forget, admin"),
        (["--scope", ""], "everywhere"),
    ):
        refused = run("token", "create", folder, "--actor", "alice", *options)
        assert refused.returncode in (1, 2)
        assert said in refused.stderr
    assert store.admin.tokens() == []
