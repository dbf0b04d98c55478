"""Secrets: found in each form, which of two is named, what is left alone; every text of every event is covered."""

import hashlib
import json
import random
import time
import uuid
from base64 import b32encode, b64encode, urlsafe_b64encode
from pathlib import Path

import msgspec
import pytest
from msgspec import inspect

from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.events import EVENT_TYPES, TurnRecorded
from mnemolog.domain.redaction import KINDS, Found, Redaction, secrets_in
from mnemolog.domain.session import Original, original_of, stored_original
from mnemolog.domain.threads import ThreadCheckpointed, pack
from mnemolog.infra.log.event_codec import decode, encode
from tests.secret_forms import forms, letters, texts

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "events.json").read_text())


def key_block(body: str, *, kind: str = "RSA ", end: bool = True) -> str:
    """A private key in its block."""
    return f"-----BEGIN {kind}PRIVATE KEY-----{body}" + (f"-----END {kind}PRIVATE KEY-----" if end else "")


GITHUB = "ghp_" + letters(36)
JWT = ".".join(("eyJ" + letters(17), "eyJ" + letters(30), letters(43)))
HELD = {
    "private-key": [
        key_block(f"\n{letters(64)}\n{letters(20)}=\n"),
        key_block(rf"\n{letters(64)}\n", kind="OPENSSH "),
        key_block(f"\n{letters(64)}\n{letters(64)}", kind="", end=False),
    ],
    "aws-access-key": ["AKIA" + letters(16, "Q7Z2"), "ASIA" + letters(16, "Q7Z2")],
    "github": [GITHUB, "ghs_" + letters(36), "github_pat_" + letters(22) + "_" + letters(59)],
    "gitlab": ["glpat-" + letters(20), "glrt-" + letters(20)],
    "slack": [
        "xoxb-" + letters(12, "123") + "-" + letters(24),
        "xapp-1-A" + letters(10, "B2") + "-" + letters(13, "7"),
    ],
    "stripe": ["sk_live_" + letters(24), "rk_test_" + letters(24), "whsec_" + letters(32)],
    "anthropic": ["sk-ant-api03-" + letters(93) + "-" + letters(6)],
    "openai": ["sk-proj-" + letters(40) + "_" + letters(20), "sk-" + letters(48)],
    "google": ["AIza" + letters(35), "GOCSPX-" + letters(28), "ya29." + letters(60)],
    "npm": ["npm_" + letters(36)],
    "pypi": ["pypi-AgE" + letters(150)],
    "hugging-face": ["hf_" + letters(34, "aBxY")],
    "sendgrid": [f"SG.{letters(22)}.{letters(43)}"],
    "twilio": ["SK" + letters(32, "0a1b")],
    "digitalocean": ["dop_v1_" + letters(64, "0a1b")],
    "shopify": ["shpat_" + letters(32, "0a1b")],
    "vault": ["hvs." + letters(90)],
    "age": ["AGE-SECRET-KEY-1" + letters(58, "Q7Z2")],
    "mnemolog": [f"mnemolog_{letters(12, '0a1b')}_{letters(43)}"],
    "jwt": [JWT],
    "private": ["<private>my PIN is 1234</private>", "<PRIVATE>a<private>b</private>c</private>"],
}
"""By kind: secrets that are replaced as a whole."""
AROUND = [
    *(("aws-secret-key", f'{name} = "{{}}"', letters(40)) for name in ("aws_secret_access_key", "SecretAccessKey")),
    ("slack", "https://hooks.slack.com/services/{}", f"T{letters(8, 'A1')}/B{letters(8, 'A1')}/{letters(24)}"),
    ("telegram", "987654321:AA{}", letters(33)),
    ("azure", "AccountKey={};EndpointSuffix=core.windows.net", letters(86) + "=="),
    *(("password", f"DB_PASSWORD={quote}{{}}{quote}", "h0rse!Staple") for quote in ("", "'")),
    *(("url-password", f"{url}:{{}}@db.example.com/x", "p@ss:word") for url in ("postgres://ada", "redis://")),
    *(("authorization", f"{name} {{}}", letters(24)) for name in ("-H 'authorization: Basic", "bearer")),
]
"""Kind, what stands around a secret and stays, and the secret."""
FREE = [
    *("the AKIA prefix", "AKIA" + letters(17, "Q7Z2"), "xAKIA" + letters(16, "Q7Z2"), "ghp_short", "x" + GITHUB),
    *("sk-learn and sk-" + letters(20), "task-" + letters(40), "risk-" + letters(32, "0a1b"), "npm_config_registry"),
    *("eyJhbGciOiJIUzI1NiJ9", "https://example.com:8080/@user", "mailto:ada@example.com", "http://[::1]:80/a@b"),
    *("postgres://ada:$PASSWORD@db", "https://user:<password>@host", "redis://:${PW}@h", "postgres://db/x?y=a:b@c"),
    *("The bearer of this letter is a friend.", "Authorization: Bearer <token>", "Authorization: required"),
    *("class A { private: int x; };", "<private> is a tag", "</private>", "hf_transfer", "SK-123", "SG.x.y"),
    *("-----BEGIN CERTIFICATE-----\n" + letters(64), "-----BEGIN PRIVATE KEY----- comes first", "12:AA" + letters(33)),
    *("AccountKey=<key>", "password: str", "PASSWORD=$PASSWORD", "ghp_" + "x" * 36, "password=[REDACTED:password]"),
    *("[REDACTED:github]", "postgres://ada:[REDACTED:url-password]@db", "AGE-SECRET-KEY-1 and more", "mnemolog_x"),
]
"""Texts that hold no secret."""


@pytest.mark.parametrize(("kind", "secret"), [(kind, one) for kind, some in HELD.items() for one in some])
def test_a_secret_is_replaced_wherever_it_stands(kind, secret):
    """Beside other words, in quotes, in JSON within JSON, percent-encoded; and once replaced it is found no more."""
    for form in ("{}", "use {} now", '"{}",', "key={}", "line\n{}", r"line\n{}", "a%20{}", "({})", "é{}"):
        redaction = Redaction()
        found = redaction.text(form.format(secret))
        assert (found, redaction.counts) == (form.format(f"[REDACTED:{kind}]"), {kind: 1})
        assert not secrets_in(found)


@pytest.mark.parametrize(("kind", "around", "secret"), AROUND)
def test_what_stands_around_a_secret_stays(kind, around, secret):
    """It tells what was there."""
    stored = around.format(f"[REDACTED:{kind}]")
    assert (Redaction().text(around.format(secret)), secrets_in(stored)) == (stored, [])


def test_every_kind_has_examples():
    """A kind cannot be added without them."""
    assert {kind for kind, *_ in KINDS} | {"private"} == HELD.keys() | {kind for kind, *_ in AROUND}


def test_a_text_without_a_secret_stays():
    """Prefixes, examples, placeholders, and longer words."""
    assert [text for text in FREE if Redaction().text(text) is not text] == []


def test_of_ten_thousand_hashes_and_identifiers_none_is_touched():
    """Hexadecimal and base64 digests, commits, UUIDs, random bytes in both alphabets of base64, data URLs."""
    rng, touched = random.Random(40), []
    for number in range(10_000):
        some = rng.randbytes(rng.randint(16, 96))
        digest = hashlib.new(("md5", "sha1", "sha256", "sha512")[number % 4], some).hexdigest()
        base64s = [encode(some).decode() for encode in (b64encode, urlsafe_b64encode, b32encode)]
        urls = [f"data:image/png;base64,{base64s[0]}", f"sha512-{base64s[0]}"]
        forms = digest, digest.upper(), str(uuid.UUID(bytes=some[:16])), some[:16].hex(), *base64s, *urls
        touched += filter(secrets_in, forms)
    assert touched == []


@pytest.mark.parametrize(
    "unit",
    [
        *("-----BEGIN RSA PRIVATE KEY-----", "-----BEGIN PRIVATE KEY----- " + letters(40), "xoxb-", "sk-", "npm_"),
        *("eyJ-", "eyJabc", "eyJ" + "a." * 9, "://a:", "://a:b@", "<private>", "<private>a</private>", "access_key="),
        *("Bearer ", "bearer " + "." * 190, "Authorization: Basic ", "uthorization" + " " * 8, "12345678:AA"),
        *(
            "password=",
            'password: "aB3',
            "Pwd={a",
            "PASSWORD" + "\\" * 15,
            "PASSWORD" + "=20" * 8,
            "pwd \x1b[1m",
            "AccountKey=",
        ),
        *(":\\/\\/a:", ":=2F=2F", "%3A%2F%2Fa%3Ab%", "access_key\\u0022", "AKIA", "=20AKIA", "\x1b[1mAKIA", "GOCSPX-"),
        *("-----BEGIN PRIVATE KEY-----\n> a", "-----BEGIN PRIVATE KEY-----" + "a: b\n" * 9, "uthorization: [Basic aB"),
        *(" ", "a", "é"),
    ],
)
def test_the_time_grows_with_the_length_and_not_with_its_square(unit):
    """Whatever is repeated: 8 times as much takes about 8 times as long, never 64 times."""

    def seconds(size):
        text, tries = unit * (size // len(unit)), []
        for _ in range(3):
            began = time.process_time()
            secrets_in(text)
            tries.append(time.process_time() - began)
        return min(tries)

    assert seconds(160_000) < 30 * max(seconds(20_000), 0.0002)


def planted(shape: inspect.Type) -> object:
    """A value of this type with a secret in each text, however deep."""
    match shape:
        case inspect.StrType():
            return GITHUB
        case inspect.AnyType():
            return [{GITHUB: GITHUB}]
        case inspect.Metadata(type=of):
            return planted(of)
        case inspect.ListType(item_type=item):
            return [planted(item)]
        case inspect.TupleType(item_types=items):
            return tuple(map(planted, items))
        case inspect.DictType(key_type=key, value_type=value):
            return {planted(key): planted(value)}
        case inspect.UnionType(types=types):
            return planted(next(item for item in types if not isinstance(item, inspect.NoneType)))
        case inspect.StructType(cls=made, fields=fields):
            return made(**{field.name: planted(field.type) for field in fields})
        case inspect.EnumType(cls=made):
            return next(iter(made))
        case inspect.LiteralType(values=values):
            return values[0]
    return {inspect.IntType: 1, inspect.FloatType: 1.0, inspect.BoolType: True, inspect.BytesType: b"x"}[type(shape)]


DECIDED = {
    "session.started.v1": ("agent scope", "title reason", "parent"),
    "turn.recorded.v1": ("original", "text speaker tool_calls metadata", ""),
    "session.ended.v1": ("", "reason", ""),
    "session.resumed.v1": ("", "reason", ""),
    "value.set.v1": ("request key", "value", ""),
    "value.deleted.v1": ("request", "", "key"),
    "task.changed.v1": ("request", "description status", ""),
    "note.added.v1": ("request", "text", ""),
    "checkpoint.created.v1": ("request id", "name description", ""),
    "checkpoint.deleted.v1": ("id", "", ""),
    "checkpoint.restored.v1": ("id", "", ""),
    "fact.asserted.v1": ("request key maker", "value", "session proposed_by"),
    "fact.retracted.v1": ("request", "reason", ""),
    "standing.ended.v1": ("request", "reason", ""),
    "proposal.made.v1": ("request", "act why", ""),
    "proposal.decided.v1": ("request", "reason", "proposed_by"),
    "source.distrusted.v1": ("sessions appended_by maker scopes", "reason", ""),
    "source.trusted.v1": ("", "reason", ""),
    "session.switched.v1": ("", "reason", "from_ to"),
    "model.activated.v1": ("fingerprint model", "", ""),
    "language.chosen.v1": ("language", "", ""),
    "recall.served.v1": (
        "mode asked superseded order about kind ranking reranker model model_name ranks traceparent",
        "query scope scopes session asked_in beside speakers by metadata topic_searched weights",
        "",
    ),
    "context.served.v1": ("recall form counted_by digest", "of sessions values", ""),
    "recall.judged.v1": ("", "by", ""),
    "forget.requested.v1": ("id", "reason despite_minimum", "targets scopes"),
    "content.forgotten.v1": ("request", "copies", ""),
    "forget.completed.v1": ("requests", "", ""),
    "token.created.v1": ("id acts_as verbs scopes", "", ""),
    "token.revoked.v1": ("id", "", ""),
    "retention.chosen.v1": ("", "", "scope max_age min_age"),
    "hold.placed.v1": ("", "reason", "scope"),
    "hold.lifted.v1": ("", "reason", ""),
    "loss.accepted.v1": ("head lost", "reason", ""),
    "thread.checkpointed.v1": ("id checkpoint metadata ns run values", "", "parent kept"),
    "thread.written.v1": ("task writes ns path", "", "checkpoint"),
    "thread.pruned.v1": ("", "reason", "hidden"),
    "thread.copied.v1": ("", "", "source"),
    "item.put.v1": ("key paths", "value", ""),
    "item.touched.v1": ("", "", "key"),
    "item.deleted.v1": ("", "", "key"),
}
"""By topic, the fields that may hold text: those refused with a secret, those where it is replaced, those kept.

What gives a name is refused, in each event the actor, too. What names something that exists is kept.
"""


@pytest.mark.parametrize("topic", EVENT_TYPES)
def test_every_text_of_every_event_is_replaced_or_refused(topic):
    """So a new event or field cannot let a secret in: whoever adds it has to decide what it holds."""
    sample = next(item for item in GOLDEN if item["topic"] == topic)
    event, decided = decode(topic, bytes.fromhex(sample["state"]), position=1), ([], [], [])
    for field in inspect.type_info(type(event)).fields:
        value = planted(field.type)
        if GITHUB not in str(value) or field.name == "redacted":
            continue
        try:
            stored = encode(Redaction().event(msgspec.structs.replace(event, **{field.name: value})))
        except InvalidInput:
            decided[0].append(field.name)
        else:
            decided[1 + (GITHUB.encode() in stored)].append(field.name)
    assert decided[0][0] == "actor"
    assert tuple(map(" ".join, (decided[0][1:], *decided[1:]))) == DECIDED.get(topic, ("", "", ""))


def test_the_original_of_a_turn_is_replaced_with_its_text_and_can_be_read():
    """It is packed with the text as dictionary. JSON is read, so a secret behind an escape is found."""
    text = f"the key is\n{GITHUB}"
    data = json.dumps({"content": text, "n": [1, 2.5]}).encode()
    turn = TurnRecorded(role="user", text=text, original=stored_original(Original(form="x", data=data), text=text))
    found = Redaction().event(turn)
    assert json.loads(original_of(found).data) == {"content": "the key is\n[REDACTED:github]", "n": [1, 2.5]}
    assert (found.redacted, Redaction().event(found)) == ({"github": 1}, found)
    plain = msgspec.structs.replace(
        turn, text="hi", original=stored_original(Original(form="x", data=b" 1"), text="hi")
    )
    assert Redaction().event(plain) == plain


@pytest.mark.parametrize("length", [40, 48, 90, 100, 120, 300])
def test_in_bytes_of_a_serialiser_a_secret_is_replaced_by_as_many_bytes(length):
    """So msgpack, pickle and other formats with lengths can still be read, whatever letter the length looks like."""
    secret = "github_pat_" + letters(length - 11)[:244]
    data = msgspec.msgpack.encode({"a": secret, "b": [secret, "é", 1.5]})
    redaction = Redaction()
    found = msgspec.msgpack.decode(redaction.data(data))
    assert secret not in str(found)
    assert (len(found["a"]), found["b"][1:], redaction.counts) == (len(secret), ["é", 1.5], {"github": 2})


def test_keys_of_objects_are_replaced_and_none_is_lost():
    """Two keys that become the same stay two. A key may tell what its value is, and so may a `name` beside it."""
    value = {GITHUB: 1, GITHUB.replace("a", "b"): 2, "Authorization": "Basic " + letters(12), "[REDACTED:github]": 3}
    assert Redaction().value(value) == {
        "[REDACTED:github]": 1,
        "[REDACTED:github]'": 2,
        "Authorization": "Basic [REDACTED:authorization]",
        "[REDACTED:github]''": 3,
    }
    variables = [{"name": "DB_PASSWORD", "value": "h0rse!Staple"}, {"name": "DB_NAME", "value": "h0rse!Staple"}]
    assert [item["value"] for item in Redaction().value(variables)] == ["[REDACTED:password]", "h0rse!Staple"]


def test_a_function_replaces_more_and_what_it_marks_is_counted():
    """It is applied after the patterns, to texts and JSON. What it returns has to be a text."""
    redaction = Redaction(lambda text: text.replace("Ada", "[REDACTED:person]"))
    assert redaction.value(["Ada", {"x": GITHUB}]) == ["[REDACTED:person]", {"x": "[REDACTED:github]"}]
    assert redaction.data(b'{"who": "\\u0041da"}') == b'{"who":"[REDACTED:person]"}'
    assert redaction.counts == {"person": 2, "github": 1}
    with pytest.raises(InvalidInput, match="redact: expected text from the function, got NoneType"):
        Redaction(lambda text: None).text("x")


def test_what_was_counted_before_stays_unless_it_is_counted_again():
    """The bytes of a thread were looked through when they were packed; texts are, whatever the event says of them."""
    value = pack("json", b"1")
    event = ThreadCheckpointed(id="1", checkpoint=value, metadata=value, values=[], kept={}, redacted={"github": 2})
    assert Redaction().event(event).redacted == {"github": 2}
    turn = TurnRecorded(role="user", text=f"the key is {GITHUB}", redacted={"github": 2, "jwt": 1})
    again = Redaction().event(turn)
    assert (again.redacted, Redaction().event(again).redacted) == ({"github": 1}, {"github": 1})


REPLACED, NOT_FOUND, UNTOUCHED = forms("replaced"), forms("not_found"), texts("untouched")


def test_a_secret_is_replaced_in_each_form_and_the_rest_of_the_text_stays():
    """Coloured, escaped, quoted, encoded, as name and value. What is stored holds none that could be found again."""
    changed = {form: Redaction().text(form.text) for form in REPLACED}
    assert {form.text: found for form, found in changed.items() if found != form.stored} == {}
    assert [found for found in changed.values() if secrets_in(found)] == []


def test_a_text_that_only_looks_like_a_secret_stays():
    """Placeholders, masks, variables, code, prose, hashes: a wrong replacement cannot be taken back."""
    assert {text: found for text in UNTOUCHED if (found := Redaction().text(text)) != text} == {}


def test_what_is_not_found_is_known():
    """The page on secrets lists these kinds: what is found from now on leaves this file and that list."""
    assert [form.text for form in NOT_FOUND if Redaction().text(form.text) != form.text] == []


def test_the_texts_are_enough_to_judge_the_patterns():
    """Nine of ten forms are replaced. The other texts are so many that one wrong replacement in a hundred shows."""
    assert len(REPLACED) >= 120
    assert len(REPLACED) >= 9 * len(NOT_FOUND)
    assert len(UNTOUCHED) >= 200


@pytest.mark.parametrize("same_length", [False, True])
def test_nothing_of_two_overlapping_secrets_is_left(same_length):
    """Neither what only the second one covers, nor anything but them is lost."""
    rng = random.Random(1)
    text = "".join(chr(0x4E00 + place) for place in range(60))
    for _ in range(500):
        places = [sorted(rng.sample(range(61), 2)) for _ in range(rng.randrange(1, 5))]
        found = sorted((Found(*place, "x") for place in places), key=lambda item: (item.begin, -item.end))
        left = [each for each in Redaction()._replaced(text, found, same_length=same_length) if each in text]
        assert left == [each for place, each in enumerate(text) if not any(a <= place < b for a, b in places)]


def test_of_two_secrets_that_begin_together_the_longer_one_is_named():
    """A token of a header may begin as one of another kind does."""
    longer = f"Authorization: Bearer {JWT}~rest.of/it"
    first, *_, last = secrets_in(longer)
    assert (first.kind, last.kind, first.begin == last.begin) == ("authorization", "jwt", True)
    assert Redaction().value(longer) == "Authorization: Bearer [REDACTED:authorization]"
    assert Redaction().value(f"see {JWT} there") == "see [REDACTED:jwt] there"
