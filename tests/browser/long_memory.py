"""A memory of 20,000 turns: a harbour's agents and their people, over half a year. Each run makes the same turns.

Everything that a page of the console can show is in it: sessions of several scopes and agents, branches, rewinds,
switches for every reason, values that expire, tasks, notes, checkpoints, receipts, a model, an erasure, hostile text.
"""

import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mnemolog import MemoryStore, NewTurn, Session
from tests.support import FakeClock, HashEncoder

TURNS = 20_000
BEGINNING = datetime(2026, 3, 2, 6, tzinfo=UTC)
STORY = "harbour/pilots/ida/berth"
"""The session with everything a session can have."""
LONGEST = "harbour/repairs/logbook"
"""A session of 2,500 turns."""
ERASED = "harbour/guests/chiara/passport"
"""A session whose content was erased, and a word that was in each of its turns."""
GONE = "saffron-1138"
TO_FORGET = "harbour/guests/dilan/cabin"
"""A session for a test to forget, and a word that is in each of its turns and nowhere else."""
SECRET = "marzipan-4711"

DESKS = {"pilots": "navigator", "cargo": "tally", "repairs": "wrench", "guests": "porter"}
"""The part of a scope, and the agent who works there."""
PEOPLE = ("ida", "bruno", "chiara", "dilan")
VESSELS = ("Aurora", "Bluethroat", "Cormorant", "Dunlin", "Eider", "Fulmar", "Gannet", "Heron", "Ibis", "Jaeger")
PLACES = ("the north quay", "berth 4", "the dry dock", "the fuel jetty", "the customs shed", "the inner basin")
THINGS = ("the bow thruster", "the mooring line", "a pallet of tiles", "the gangway", "the tide table", "the radio")
ASKED = (
    "When does the {vessel} leave {place}?",
    "On the {vessel}, {thing} is broken again. Who can come to {place} before {hour}:{minute:02}?",
    "Please move the {vessel} to {place} before {hour}:{minute:02}.",
    "I left {thing} at {place}; can somebody bring it to the {vessel}?",
    "Is there room for the {vessel} at {place} after {hour}:{minute:02}?",
)
ANSWERED = (
    "The {vessel} is at {place} until {hour}:{minute:02}. I have put it in the plan.",
    "They looked at {thing} at {hour}:{minute:02}. The {vessel} can stay at {place} until then.",
    "Done: the {vessel} has {place} from {hour}:{minute:02} on, and {thing} goes with it.",
    "I asked at {place}. They see to {thing} by {hour}:{minute:02} and call the {vessel}.",
)
MEGABYTE = "A very long line that somebody pasted. " * 26_800
"""A text of almost the 1 MiB that a turn may hold."""
HOSTILE = (
    "<script>document.title = 'taken'; alert(1)</script>",
    '"><img src=x onerror="alert(2)"><svg onload=alert(3)>',
    "</pre></td></script></style></textarea><iframe src='javascript:alert(4)'></iframe>",
    "[press me](javascript:alert(5)) javascript:alert(6) <a href='javascript:alert(7)' id=planted>press me</a>",
    "invoice\u202egnp.exe \u2066left\u2069 \u200bzero\u200b \u200dwidth\ufeff",
    "{{ 7 * 7 }} {% raw %} ${7*7} <!-- --> <![CDATA[ ]]> &lt;b&gt; %3Cscript%3E",
    "Z" + "\u0334\u0335\u0336" * 200 + "algo",
)
"""Texts that a careless page would run, obey or be torn apart by."""
LABEL = "<script>alert('label')</script>"
"""A hostile name: control characters are refused in one, so it has none."""


def encoder() -> HashEncoder:
    """The model that the memory was made with."""
    return HashEncoder(fingerprint="harbour/1", dimension=32)


def open_memory(folder: Path, **options: Any) -> MemoryStore:
    """Open the store in `folder` with its model."""
    return MemoryStore.open(folder, model=encoder(), **options)


def make(folder: Path) -> None:
    """Make the store in the new folder `folder`."""
    chance = random.Random(22)
    clock = FakeClock(round(BEGINNING.timestamp() * 1_000_000))
    with open_memory(folder, clock=clock, synchronous="NORMAL", encrypt=True, background=False, receipts=True) as store:
        store.models.activate(encoder())
        _tell_story(store, clock)
        _plant(store, clock)
        _fill(store, clock, chance, upto=TURNS - 200)
        _ask(store, clock)
        _fill(store, clock, chance, upto=TURNS)
        store.admin.catch_up_views()
        store.admin.catch_up_vectors()


def _said(chance: random.Random, sentences: tuple[str, ...]) -> str:
    return chance.choice(sentences).format(
        vessel=chance.choice(VESSELS),
        place=chance.choice(PLACES),
        thing=chance.choice(THINGS),
        hour=chance.randrange(5, 22),
        minute=5 * chance.randrange(12),
    )


def _talk(chance: random.Random, session: Session, turns: int) -> list[NewTurn]:
    user = {"role": "user", "speaker": session.scope.rpartition("/")[2].title()}
    agent = {"role": "assistant", "speaker": session.agent.title()}
    return [
        NewTurn(session=session, text=_said(chance, ANSWERED), **agent)
        if n % 2
        else NewTurn(session=session, text=_said(chance, ASKED), key=f"{session.id}/{n}", **user)
        for n in range(turns)
    ]


def _fill(store: MemoryStore, clock: FakeClock, chance: random.Random, *, upto: int) -> None:
    """Record conversations, one after the other, until there are `upto` turns."""
    there = sum(item.turns + item.forgotten_turns for item in store.sessions())
    begun = len(store.sessions())
    while there < upto:
        clock.advance(seconds=chance.randrange(3_600, 150_000))
        desk, agent = chance.choice(list(DESKS.items()))
        person = chance.choice(PEOPLE)
        begun += 1
        id = LONGEST if begun == 30 else f"harbour/{desk}/{person}/{begun}"
        turns = min(2_500 if id == LONGEST else chance.randrange(40, 320), upto - there)
        title = f"{chance.choice(VESSELS)} at {chance.choice(PLACES)}"
        session = store.session(id, agent=agent, scope=f"harbour/{desk}/{person}", title=title)
        said = _talk(chance, session, turns)
        for begin in range(0, turns, 100):
            clock.advance(seconds=chance.randrange(60, 7_200))
            session.record_many(said[begin : begin + 100])
        there += turns
        if begun % 7 == 0:
            session.end(reason="the ship has left")


def _tell_story(store: MemoryStore, clock: FakeClock) -> None:
    """A morning of a pilot: each reason to switch, and everything a working memory can hold."""
    scope, agent = "harbour/pilots/ida", "navigator"
    story = store.switch(STORY, reason="new", agent=agent, scope=scope, title="A berth for the Aurora")
    story.record("system", "You help the pilots of the harbour. Answer in one or two sentences.")
    story.record("user", "The Aurora comes in at six. Where can she lie?", speaker="Ida", said_at="2026-03-02T05:40Z")
    story.set_task("Find a berth for the Aurora", step=1, total=3, percent=20)
    story.set("vessel", {"name": "Aurora", "length_m": 88, "flags": ["NO", "PT"]})
    story.set("tide", "rising", ttl=3_600)
    story.set("pilot", "Ida", ttl=365 * 86_400)
    story.note("Ida prefers berth 4: the north quay has no shore power.")
    story.checkpoint("before asking", "Nobody has been asked yet.")
    clock.advance(seconds=1_200)
    call = {"id": "c1", "name": "berths", "arguments": {"length_m": 88}}
    story.record(
        "assistant", "I look at the plan.", speaker="Navigator", tool_calls=[call], metadata={"shift": "early"}
    )
    story.record("tool", '{"free": ["berth 4", "the north quay"]}', speaker="berths")
    asked = story.record("assistant", "Berth 4 is free from six on, and the north quay all day.", speaker="Navigator")
    story.update_task(step=2, percent=60)
    story.set("berth", "berth 4")
    story.record("user", "Then the north quay. No, wait, that was wrong.", speaker="Ida")
    story.record("assistant", "The north quay it is.", speaker="Navigator")
    story.rewind(turns=2)
    story.note("The north quay was a slip of the tongue.")
    story.restore("before asking")
    story.record("user", "Berth 4, please.", speaker="Ida")
    clock.advance(seconds=86_400)
    store.switch(f"{STORY}/if-it-rains", reason="branch", agent=agent, at=asked.position, title="What if it rains?")
    store.record(f"{STORY}/if-it-rains", "user", "What would you say if it rained?", speaker="Ida")
    store.switch(STORY, reason="resume", agent=agent)
    store.switch(f"{STORY}/short", reason="compress", agent=agent, title="The berth, in short")
    store.record(f"{STORY}/short", "assistant", "In short: the Aurora lies at berth 4.", speaker="Navigator")
    store.record(f"{STORY}/short", "user", "And tomorrow?", speaker="Ida")
    store.switch(reason="rewind", agent=agent, turns=1)
    store.switch(f"{STORY}/tomorrow", reason="reset", agent=agent, title="Tomorrow's berth")
    store.record(f"{STORY}/tomorrow", "user", "The Aurora stays one more night.", speaker="Ida")
    story.assert_fact("aurora/berth", "the north quay", because=[asked])
    story.assert_fact("aurora/berth", "berth 4", because=[asked])
    helper = store.session(f"{STORY}/tugs", agent="tally", scope=scope, title="Tugs for the Aurora", parent=STORY)
    helper.record("user", "Order two tugs for six.", speaker="Navigator")


def _plant(store: MemoryStore, clock: FakeClock) -> None:
    """Hostile text wherever text can be, a text of 1 MB, and what was or will be forgotten."""
    clock.advance(seconds=86_400)
    hostile = store.session(f"hostile/{LABEL}", agent=LABEL, scope=f"hostile/{LABEL}", title=LABEL)
    for text in HOSTILE:
        hostile.record("user", text, speaker=LABEL, metadata={LABEL: text})
        hostile.note(text)
        hostile.set(text[:100] if text.isprintable() else LABEL, text)
    hostile.record("user", MEGABYTE + HOSTILE[0], speaker="javascript:alert(8)")
    hostile.set_task(HOSTILE[0])
    hostile.checkpoint(LABEL, HOSTILE[1])
    hostile.branch("javascript:alert(9)", title=HOSTILE[3][:40]).end(reason=LABEL)
    for id, word in ((ERASED, GONE), (TO_FORGET, SECRET)):
        session = store.session(id, agent="porter", scope=id.rpartition("/")[0], title=f"About {word}")
        clock.advance(seconds=3_600)
        for n in range(12):
            session.record("user", f"Number {n} on the list of things about {word}.", speaker="Chiara")
        session.note(f"Do not tell anybody of {word}.")
        session.set("word", word)
    clock.advance(seconds=3_600)
    store.forget(session=ERASED, reason="Chiara asked for it")


def _ask(store: MemoryStore, clock: FakeClock) -> None:
    """Recalls and contexts that leave receipts."""
    for query in ("berth for the Aurora", "who can look at the bow thruster?", HOSTILE[0]):
        clock.advance(seconds=600)
        store.recall(query, 5, scope="harbour" if "A" in query else "")
    store.context("berth for the Aurora", 400, scope="harbour/pilots")
