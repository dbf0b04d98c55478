"""A token sees, lists and guesses nothing outside of its scopes, on any route: random scopes, tokens and requests.

What lies outside of a caller's scopes does not show through what refers to it, in no answer of any interface. Two
stores differ in this: what others recorded refers to turns, sessions and facts of Ann, or it does not; and what Ann
has refers to one or to another event of theirs. Every answer to Ann is the same, byte by byte. What a token that
may only record is shown: nothing that others have said.
"""

import asyncio
import io
import itertools
import json
import re
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import get_args, get_origin, get_type_hints
from urllib.parse import quote

import httpx2
import msgspec
import pytest
from starlette.middleware import Middleware

from mnemolog import AsyncMemoryStore, MemoryStore, MnemologError, acting_as
from mnemolog.adapters.support.agent_tools import Memory
from mnemolog.adapters.support.agent_tools.catalogue import TOOLS
from mnemolog.adapters.support.store_access import with_pools
from mnemolog.aio.wrappers import WorkerPools
from mnemolog.domain.event import Ordinal, references_of
from mnemolog.domain.events import EVENT_TYPES
from mnemolog.domain.scope import covers
from mnemolog.domain.tokens import VERBS
from mnemolog.operation_table import OPERATIONS
from mnemolog.server.console.routes import PAGES
from mnemolog.server.http import api
from mnemolog.server.http.api import make_app
from mnemolog.server.http.authentication import REFUSED_S, Authentication, Callers
from mnemolog.server.http.routes import ROUTES
from mnemolog.server.http.serialization import CONTENT, Answers, parameters
from tests.console import opened_console
from tests.counted_work import Work
from tests.server.api.conftest import Time
from tests.server.api.examples import EXAMPLES, TRIP, TRIP_ID
from tests.server.api.test_tail import following
from tests.server.serving import server
from tests.support import FakeClock

SENTINEL = "heliotrope"
"""In everything that is outside of the token's scopes: texts, names, keys, ids, scopes, agents."""
SCOPES = [f"{top}/{user}" for top in ("acme", "globex") for user in ("ada", "bob", "cem")]
VOLATILE = re.compile(rb'"(digest|previous_digest|etag|log_id|state)":"[^"]*"|"elapsed[^,]*')


def filled(store, scope, name, word):
    """A session with everything that one can have; `word` is in each part of it. Return its id."""
    session = store.session(name, scope=scope, agent=f"{word}-agent", title=f"{word} title")
    session.record("user", f"the train of {word} leaves", key=f"{word}-k", speaker=word, metadata={word: word})
    session.record("assistant", f"platform {word}", tool_calls=[{"name": word}])
    session.set(f"{word}-key", {word: word})
    session.set("city", word)
    session.assert_fact(f"user/{word}", word, maker=word, reason=word)
    session.assert_fact("user/city", word)
    session.note(f"{word} note")
    session.set_task(f"{word} task", total=3)
    session.checkpoint(f"{word}-checkpoint", description=word)
    session.checkpoint("packed")
    store.switch(name, reason="resume", agent=f"{word}-agent")
    store.recall(f"train {word}", scope=scope, receipt=True, mode="text")
    return name


class Tenants:
    """A store of many tenants, and a server that a token for some of them is sent to."""

    def __init__(self, folder, *, own, foreign, verbs, ghost):
        self.store = MemoryStore.open(folder, model=None, clock=FakeClock(), background=False)
        self.fill(own, foreign, ghost)
        self.secret = self.store.admin.create_token("verbena", scopes=own, verbs=verbs).secret
        self.store.admin.create_token(SENTINEL, scopes=[f"other/{SENTINEL}"])
        whole, self.time = AsyncMemoryStore(self.store, WorkerPools()), Time()
        middleware = Middleware(
            Authentication,
            callers=Callers(whole),
            store=whole,
            needs_token=True,
            time=self.time,
            sleep=self.time.sleep,
        )
        self.app = make_app(whole, middleware=[middleware])

    def fill(self, own, foreign, ghost):
        """Record what each tenant has; what others have refers to it."""
        self.sessions = {scope: filled(self.store, scope, f"{scope}/trip", "verbena") for scope in own}
        for number, scope in enumerate(foreign):
            filled(self.store, f"{scope}/{SENTINEL}", f"{SENTINEL}-{number}", SENTINEL)
        filled(self.store, f"other/{SENTINEL}", ghost, SENTINEL)
        mine, theirs = self.store.turns(self.sessions[own[0]]), self.store.turns(ghost)
        self.store.assert_fact("user/pin", SENTINEL, scope=f"other/{SENTINEL}", because=mine)
        self.store.assert_fact("user/seen", "verbena", scope=own[0], because=theirs)
        self.store.recall(f"train {SENTINEL}", receipt=True, mode="text")
        self.store.session(f"{own[0]}/child", scope=own[0], parent=ghost)
        self.store.forget(session=f"{SENTINEL}-0" if foreign else ghost, reason=SENTINEL)

    async def __aenter__(self):
        transport = httpx2.ASGITransport(app=self.app, raise_app_exceptions=False)
        headers = {"authorization": f"Bearer {self.secret}"}
        self.client = httpx2.AsyncClient(transport=transport, base_url="http://memory.test/v1", headers=headers)
        return self

    async def __aexit__(self, *_):
        await self.client.aclose()
        self.store.close()

    async def ask(self, request, **headers):
        method, path, body, params = request
        how = {"params": params} if method in ("GET", "DELETE") else {"json": body or {}}
        return await self.client.request(method, path, headers=headers, **how)


def requests(name, *, scope, agent, position):
    """A request to each operation, about a session, a scope, an agent and a position."""
    for operation in ROUTES:
        example = EXAMPLES[operation.name]
        path = example.path.replace(TRIP, quote(name, safe="")).replace(
            "/sessions/other/", f"/sessions/{quote(name, safe='')}/"
        )
        path = (
            path.replace("/agents/assistant", f"/agents/{quote(agent, safe='')}")
            .replace("/events/2", f"/events/{position}")
            .replace("/turns/2/", f"/turns/{position}/")
        )
        path = re.sub(r"\{\w+\}", str(position), path)
        found = {item.name: item for item in parameters(operation) if not item.in_path}
        given = json.loads(json.dumps(example.json or example.params or {}).replace(TRIP_ID, name))
        about = {
            "session": name,
            "parent": name,
            "to": name,
            "id": name,
            "scope": scope,
            "agent": agent,
            "after": position,
            "at": position,
            "as_of": position,
            "before": max(position - 1, 1),
        }
        for field in found:
            for value in (about[field],) if field in about else ():
                changed = given | {field: value}
                if field in ("session",) and isinstance(given.get(field), list):
                    changed[field] = [value]
                yield operation, operation.http, path, changed
        yield operation, operation.http, path, given


def shown(answer, *sent):
    """Everything of an answer: status, headers and body, without the names that were sent in."""
    headers = "\n".join(f"{name}: {value}" for name, value in answer.headers.items() if name not in ("etag",))
    content = answer.content
    if content.startswith(b"PK"):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            content = b"\n".join(map(archive.read, archive.namelist()))
    text = f"{answer.status_code}\n{headers}\n".encode() + VOLATILE.sub(b"", content)
    for number, name in enumerate(sorted(sent, key=len, reverse=True)):
        for form in {name, json.dumps(name)[1:-1], quote(name, safe="")}:
            text = text.replace(form.encode(), b"<%d>" % number)
    return re.sub(rb"content-length: \d+", b"", text)


def chosen(rng):
    """Random scopes of a token, those of others, and random verbs."""
    own = rng.sample(SCOPES, rng.choice((1, 1, 2, 3)))
    if rng.random() < 0.3:
        own = [rng.choice(("acme", "globex"))]
    foreign = [scope for scope in SCOPES if not any(covers(mine, scope) for mine in own)]
    verbs = list(VERBS) if rng.random() < 0.5 else rng.sample(VERBS, rng.choice((1, 2, 3)))
    return {"own": own, "foreign": foreign, "verbs": verbs}


@pytest.mark.parametrize("number", range(4))
async def test_no_answer_holds_anything_of_another_scope(tmp_path, rng, number):
    """Every operation, about own, foreign and unknown sessions, scopes, agents and positions, with random tokens."""
    about = chosen(rng)

    yield_of: dict[int, int] = {}
    async with Tenants(tmp_path / "memory", ghost=f"{SENTINEL}-ghost", **about) as tenants:
        head = tenants.store.head().position
        own = about["own"][0]
        names = [tenants.sessions[own], f"{SENTINEL}-ghost", f"{SENTINEL}-1", "nobody-has-this"]
        scopes = [own, f"other/{SENTINEL}", "other/none", "other"]
        agents = ["verbena-agent", f"{SENTINEL}-agent", "none-agent", f"{own}/agent"]
        for name, scope, agent in zip(names, scopes, agents, strict=True):
            for operation, *request in requests(name, scope=scope, agent=agent, position=rng.randint(1, head)):
                path, given = request[1], request[2]
                headers = {"mnemolog-scope": own} if rng.random() < 0.5 else {}
                answer = await tenants.ask((request[0], path, given, given), **headers)
                assert answer.status_code < 500, (operation.name, path, given, answer.text)
                made = [f"{within}/{word}" for within in about["own"] for word in (*names, *agents)]
                told = shown(answer, name, scope, agent, path, *made)  # Such a name is free in its scopes.
                assert SENTINEL.encode() not in told, (operation.name, path, given, headers, answer.text)
                yield_of[answer.status_code] = yield_of.get(answer.status_code, 0) + 1
    assert "read" not in about["verbs"] or yield_of[200] > 20, "most requests about own things are answered"


@pytest.mark.parametrize("number", range(2))
async def test_unknown_and_forbidden_are_answered_alike_and_at_the_same_time(tmp_path, rng, number):
    """Two stores that differ in one foreign id: every answer about that id is the same, byte by byte."""
    about = chosen(rng) | {"verbs": list(VERBS)}
    ghosts = ("ghost-one-11", "ghost-two-22")

    async with (
        Tenants(tmp_path / "one", ghost=ghosts[0], **about) as one,
        Tenants(tmp_path / "two", ghost=ghosts[1], **about) as two,
    ):
        refused = 0
        for name in ghosts:  # It is there in the one store, and in the other it is not.
            for operation, *request in requests(name, scope="other/x", agent=name, position=3):
                if operation.name in ("start_session", "switch", "session.branch") and request[2].get("to") is None:
                    continue  # Makes a random id.
                answers, times = [], []
                for tenants in (one, two):
                    began = tenants.time.now
                    answers.append(await tenants.ask((request[0], request[1], request[2], request[2])))
                    times.append(round(tenants.time.now - began, 9))
                told = [shown(answer) for answer in answers]
                if 400 <= answers[0].status_code < 500:
                    refused += 1
                    assert told[0] == told[1], (operation.name, request)
                    assert times[0] == times[1] == REFUSED_S, (operation.name, request)
                else:
                    assert answers[0].status_code == answers[1].status_code < 500, (operation.name, request)
                    made = [f"{within}/{ghost}" for within in about["own"] for ghost in ghosts]
                    assert not any(ghost.encode() in shown(answers[0], name, *made) for ghost in ghosts)
        assert refused > 100


async def test_the_cursor_of_another_caller_shows_nothing(tmp_path):
    """The next page of a recall, of `find` and of lists is within the scopes, whoever got the cursor."""
    about = {"own": ["acme/ada"], "foreign": ["acme/bob"], "verbs": ["read"]}

    async with Tenants(tmp_path / "memory", ghost="ghost", **about) as tenants:
        whole = tenants.store.recall("train", k=1, mode="text")
        assert whole.next is not None
        for after, cursors in (("recall", whole.next), ("find", 0), ("sessions", 0), ("timeline", 0)):
            if after in ("recall", "find"):
                body = (
                    {"query": "train", "k": 1, "mode": "text"} if after == "recall" else {"text": "train", "limit": 1}
                )
                request = ("POST", f"/{after}", body | {"after": cursors}, None)
            else:
                request = ("GET", f"/{after}", None, {"after": cursors, "limit": 1})
            seen = 0
            for _ in itertools.repeat(None, 50):
                answer = await tenants.ask(request)
                assert SENTINEL not in answer.text
                assert answer.status_code in (200, 400)
                following = answer.json().get("next")
                if following is None:
                    break
                seen += 1
                (request[2] if request[2] is not None else request[3])["after"] = following
            assert seen < 50


async def test_the_description_of_the_api_and_an_entity_tag_tell_nothing_of_others(tmp_path):
    """`/openapi.json` is the same for everybody; a tag is the position and digest of the whole log, which is stated."""
    about = {"own": ["acme/ada"], "foreign": ["acme/bob"], "verbs": ["read"]}

    async with Tenants(tmp_path / "memory", ghost="ghost", **about) as tenants:
        document = await tenants.ask(("GET", "/openapi.json", None, None))
        assert document.status_code == 200
        assert SENTINEL not in document.text
        answer = await tenants.ask(("GET", "/sessions", None, None))
        for known in ("*", answer.headers["etag"]):
            again = [
                await tenants.ask(("GET", f"/sessions/{name}/turns", None, None), **{"if-none-match": known})
                for name in ("ghost", "nobody")
            ]
            assert again[0].status_code == 404
            assert shown(again[0], "ghost") == shown(again[1], "nobody")


async def test_a_follower_sees_only_events_of_its_scopes(tmp_path):
    """`/v1/tail` with a token sends the events of its scopes, also after a resume from the beginning of the log."""
    about = {"own": ["acme/ada"], "foreign": ["acme/bob"], "verbs": ["read"]}

    async with Tenants(tmp_path / "memory", ghost="ghost", **about) as tenants:
        sent = b"authorization", f"Bearer {tenants.secret}".encode()
        async with following(tenants, "after=0", headers=[sent]) as followed:
            await asyncio.to_thread(tenants.store.record, "ghost", "user", f"{SENTINEL} again")
            mine = await asyncio.to_thread(tenants.store.record, "acme/ada/trip", "user", "this is mine")
            text = repr(await followed.upto(mine.position))
        assert SENTINEL not in text
        assert "verbena" in text
        assert "this is mine" in text


async def test_a_page_of_the_history_reads_a_bounded_part_of_the_log(tmp_path, monkeypatch):
    """However much others recorded. Such a page may be empty, and the next one goes on from there."""
    monkeypatch.setattr(api, "POSITIONS", 7)
    about = {"own": ["acme/ada"], "foreign": ["acme/bob", "acme/cem", "globex/ada"], "verbs": ["read"]}

    async with Tenants(tmp_path / "memory", ghost="ghost", **about) as tenants:
        part = tenants.store.within("acme/ada")
        for path, expected in (("/timeline", part.audit.timeline()), ("/events", part.events())):
            found, lengths, after = [], [], 0
            while after is not None:
                page = (await tenants.ask(("GET", path, None, {"after": after}))).json()
                found += [item["position"] for item in page["items"]]
                lengths.append(len(page["items"]))
                assert page["next"] is None or page["next"] == after + 7
                after = page["next"]
            assert found == [item.position for item in expected]
            assert 0 in lengths[:-1]
            assert max(lengths) <= 7
        last = await tenants.ask(("GET", "/timeline", None, {"after": 8, "upto": 12}))
        assert last.json()["next"] is None


ANN, BOB = "acme/ann", "acme/bob"
OWN_TRIP = f"{ANN}/trip"
SAID = datetime(2026, 3, 1, tzinfo=UTC)
ASKED = {"session": OWN_TRIP, "query": "ferry", "scope": ANN}
RANDOM = re.compile(r'\b[0-9a-f]{12,64}\b|"done":\w+')
MOMENTS = {
    *("position", "head", "as_of", "vectors_cover", "covers", "after", "upto", "purged", "activated_at"),
    *("started_position", "last_position", "branched_at", "receipt", "assertions", "retracted", "forgotten"),
    *("distrusted", "undone", "questions", "dimension", "retain_every_n_turns"),
}
"""Fields that say where something itself is, since when or as of when it is."""
INSIDE = {
    "CameAfter.turns",
    "Proposal.now_at",
    "FactRetracted.fact",
    "SourceTrusted.distrust",
    "ThreadCheckpointed.parent",
}
"""What these refer to is in the same stream, in the same thread, or left out where it is made."""
REFUSED = {"Judgement", "RecallJudged"}
"""No store for scopes shows these."""


def structs_in(hint, found):
    """Add the structs of a type hint to those that were found, and those in their fields."""
    for part in get_args(hint):
        structs_in(part, found)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct) and hint not in found:
        found.add(hint)
        for of_field in get_type_hints(hint, include_extras=True).values():
            structs_in(of_field, found)


def planted(store, *, refers):
    """Record what Ann said, and then what others did. Return the positions of Ann's turns."""
    own, theirs = store.session(OWN_TRIP, scope=ANN, agent="ann"), store.session(f"{BOB}/trip", scope=BOB)
    ferry = own.record("user", "The ferry leaves at nine.")
    own.record("assistant", "Shall I book the ferry?")
    pins = [theirs.record("user", f"My PIN is 471{number}.", said_at=SAID) for number in (1, 2)]
    other = store.session(f"{BOB}/work", scope=BOB)
    own.assert_fact("user/pin", "known", because=[pins[refers]], valid_from=SAID)
    store.session(f"{ANN}/child", scope=ANN, parent=(theirs if refers else other).id)
    own.checkpoint("packed")
    own.set("city", "Porto")
    # From here on only others record.
    turn = ferry if refers else pins[0]
    store.assert_fact("ferry/time", "nine", scope=BOB, because=[turn])
    store.assert_fact("ferry/time", "ten", scope=BOB)
    with acting_as("bobs-agent"):
        store.recall("ferry PIN", k=5, scope="" if refers else BOB, receipt=True, mode="text")
        receipt = store.context("ferry PIN", scope="" if refers else BOB, receipt=True, mode="text").receipt
    store.audit.judge(receipt, good=[turn.position])
    store.switch(f"{BOB}/branch", reason="branch", session=own.id if refers else theirs.id, scope=BOB, agent="bob")
    store.session(f"{BOB}/child", scope=BOB, parent=own.id if refers else theirs.id)
    scope = ANN if refers else BOB  # What inherits from outside is outside, whatever its scope is.
    store.switch(f"{scope}/inherits", reason="branch", session=theirs.id, scope=scope, agent="bob")
    store.distrust(session=f"{BOB}/branch", reason="a forged page")
    store.distrust(positions=[pin.position for pin in pins], reason="a forged page")
    return ferry.position


class Twin(Tenants):
    """One of the two stores, and a server that Ann's token is sent to."""

    def __init__(self, folder, *, refers):
        self.refers = refers
        super().__init__(folder, own=[ANN], foreign=[], verbs=VERBS, ghost="")

    def fill(self, own, foreign, ghost):
        planted(self.store, refers=self.refers)


async def test_every_operation_answers_as_if_nothing_outside_referred_to_what_is_inside(tmp_path):
    """Each request of the API, about Ann's sessions, and about every position of the log."""
    async with Twin(tmp_path / "one", refers=True) as one, Twin(tmp_path / "two", refers=False) as two:
        asked = [
            ("GET", path, {})
            for position in range(1, one.store.head().position + 1)
            for path in (f"/turns/{position}/effects", f"/events/{position}")
        ]
        for name in (OWN_TRIP, f"{ANN}/child", f"{BOB}/branch"):
            asked += [tuple(request) for _, *request in requests(name, scope=ANN, agent="ann", position=3)]
        asked = [request for request in asked if "/prefetch" not in request[1]]
        answered = 0
        for method, path, given in asked:
            answers = [shown(await twin.ask((method, path, given, given))).decode() for twin in (one, two)]
            told = [RANDOM.sub("", answer) for answer in answers]
            assert told[0] == told[1], (method, path, given)
            answered += told[0].startswith("200")
        assert answered > 60


def test_no_page_and_no_tool_shows_what_refers_from_outside(tmp_path):
    """Pages of the console as data, and the tools that agents have."""
    found = []
    for refers in (True, False):
        shows = []
        with opened_console(tmp_path / str(refers), clock=FakeClock()) as browser:
            planted(with_pools(browser.store)[0], refers=refers)
            ann = browser.as_caller(*VERBS, scope=ANN)
            for page in PAGES:
                answer = ann.get(
                    f"{page.path}?id={OWN_TRIP}&session={OWN_TRIP}&position=2&q=ferry", Accept="application/json"
                )
                shows.append((page.path, answer.status_code, RANDOM.sub("", answer.text)))
            memory = Memory(browser.store.within(ANN), agent="ann")
            for tool in TOOLS.values():
                given = {name: value for name, value in ASKED.items() if name in tool.input_schema["properties"]}
                answer = repr(browser.run(tool.ask(memory, given))) if tool.effect == "reads" else ""
                shows.append((tool.name, RANDOM.sub("", answer)))
        found.append(shows)
    assert sum(len(one) == 3 and one[1] == 200 for one in found[0]) > 8
    assert found[0] == found[1]


ABOUT_ONE = {
    "effects": lambda store, place: store.audit.effects(place.position),
    "turns": lambda store, place: store.turns(place.session),
    "session": lambda store, place: store.find_session(place.session),
    "recall": lambda store, place: store.recall("ferry", session=place.session, mode="text"),
    "end": lambda store, place: store.end_session(place.session),
    "fact": lambda store, place: store.assert_fact("k", 1, because=[place.position]),
    "distrust": lambda store, place: store.distrust(session=place.session, reason="forged"),
    "forget": lambda store, place: store.forget(session=place.session),
}


@pytest.mark.parametrize("call", ABOUT_ONE)
def test_what_is_outside_takes_as_many_questions_to_the_database_as_what_never_was(tmp_path, call):
    """So the time of a refusal does not tell whether others have it."""
    asked, refusals = [], []
    with MemoryStore.open(tmp_path / "memory", model=None, background=False) as store:
        planted(store, refers=True)
        theirs = store.turns(f"{BOB}/trip")[0]
        never = SimpleNamespace(position=store.head().position + 1, session=f"{BOB}/none")
        bound = store.within(ANN)
        for place in (theirs, never, theirs, never):  # From the second on it is known where sessions are.
            questions = Questions()
            with questions.counting(), suppress(MnemologError):
                refusals.append(repr(ABOUT_ONE[call](bound, place)))
            asked.append(questions.done)
    assert asked[2] == asked[3] > 0
    assert set(refusals) <= {"None"}


class Questions(Work):
    """Counts statements that are executed."""

    def _called(self, frame, event, argument):
        self.done += event == "c_call" and argument.__name__.startswith("execute")


def test_what_a_field_refers_to_is_said_by_its_type():
    """A new field of an event or a result with a position or a session fails until its type says what it refers to."""
    kinds, undecided = set(EVENT_TYPES.values()), []
    for operation in OPERATIONS:
        structs_in(get_type_hints(operation.method)["return"], kinds)
    for kind in kinds:
        hints = get_type_hints(kind, include_extras=True)
        for name in kind.__struct_fields__:
            field = f"{kind.__name__}.{name}"
            may_refer = "Position" in str(hints[name]) or hints[name] in (Ordinal, list[Ordinal]) or name == "parent"
            is_decided = name in MOMENTS or field in INSIDE or kind.__name__ in REFUSED
            if may_refer and not is_decided and references_of(kind).get(name) is None:
                undecided.append(field)
    assert not undecided, " ".join(sorted(undecided))


def test_what_yields_items_reads_them_through_the_events_that_are_visible():
    """Those are looked up in batches; a new method that yields fails here until it does so, too."""
    yields = {item.name for item in OPERATIONS if get_origin(get_type_hints(item.method)["return"]) is Iterator}
    assert yields == {"events", "audit.timeline"}


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
    # The others within a minute, and when the server stops; whoever only reads the store sees them too.
    with MemoryStore.open(folder, model=None, read_only=True) as store:
        tokens = {token.actor: token for token in store.admin.tokens()}
    assert tokens["record"].last_used_at >= tokens["record"].created_at
    assert all(round((token.expires_at - token.created_at) / timedelta(days=1)) == 90 for token in tokens.values())
    assert tokens["metrics"].last_used_at >= tokens["metrics"].created_at
    assert tokens["forget"].last_used_at is None
