"""A token sees, lists and guesses nothing outside of its scopes, on any route: random scopes, tokens and requests."""

import asyncio
import io
import itertools
import json
import re
import zipfile
from urllib.parse import quote

import httpx2
import pytest
from starlette.middleware import Middleware

from mnemolog import MemoryStore
from mnemolog.aio.store import AsyncMemoryStore
from mnemolog.aio.wrappers import WorkerPools
from mnemolog.domain.scope import covers
from mnemolog.domain.tokens import VERBS
from mnemolog.server.http import api
from mnemolog.server.http.api import make_app
from mnemolog.server.http.authentication import REFUSED_S, Authentication, Callers
from mnemolog.server.http.routes import ROUTES
from mnemolog.server.http.serialization import parameters
from tests.server.api.conftest import Time
from tests.server.api.examples import EXAMPLES, TRIP, TRIP_ID
from tests.server.api.test_tail import following
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
