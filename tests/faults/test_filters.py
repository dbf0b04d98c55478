"""Recalls with filters, against a model that looks at every turn: random histories, filters, lineages and positions."""

import random
from collections import Counter
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from itertools import product
from math import log

import numpy as np
import pytest
from msgspec.structs import replace

from mnemolog import MemoryStore, Weights
from mnemolog.domain import errors
from mnemolog.domain.encoding import canonical
from mnemolog.domain.events import TurnRecorded
from mnemolog.domain.message import Role
from mnemolog.domain.scope import covered, parse_scopes
from mnemolog.domain.session import Span, session_of
from mnemolog.domain.values import ORIGIN
from mnemolog.projections.recall.text_search import PLACES_MAX
from mnemolog.projections.sql.filtering import turns_left
from mnemolog.projections.sql.queries import Filters
from mnemolog.projections.sql.words import stems_of, terms_of
from tests.support import FakeClock, HashEncoder, as_stored, blocks_of, found_by_text, projections_of

FILTERS_PER_STORE = 100
WORDS = ("tea", "ferry", "dog", "moved", "lisbon", "snake_case", "日本語", *(f"word{n}" for n in range(8)))
SCOPES = ("", "acme", "acme/a", "acme/a/deep", "acme/ab", "other")
SPEAKERS = (None, "Ada", "Bo")
ROLES = tuple(role.value for role in Role)
METADATA = ({}, {"topic": "trip"}, {"topic": "work", "n": 1}, {"n": 2}, {"n": 1.0})
START = datetime(2024, 1, 1).astimezone()
DIMENSION = 16


class Model:
    """Every turn of a store, as the log has it."""

    def __init__(self, store):
        self.store, self.encoder = store, HashEncoder(dimension=DIMENSION)
        self.scopes = {item.session: item.scope for item in store.sessions()}
        self.roots = dict[str, str]()
        for item in store.sessions():  # Parents come first.
            self.roots[item.session] = self.roots.get(item.parent, item.session)
        self.started = {item.session: item.started_position for item in store.sessions()}
        read = store.parts.log.read(after=ORIGIN, upto=store.parts.log.head().position)
        self.turns = [event for events in read for event in events if isinstance(event.event, TurnRecorded)]
        self.head = store.parts.log.head().position
        self.vectors = dict(
            zip(
                (turn.position for turn in self.turns),
                as_stored(self.encoder.encode([turn.event.text for turn in self.turns])),
                strict=True,
            )
        )

    def left(self, filters, upto):
        """The turns that filters leave at a position."""
        return [turn for turn in self.turns if turn.position <= upto and self.matches(turn, filters)]

    def matches(self, turn, filters):
        session, said = session_of(turn.stream), turn.event
        at = turn.recorded_at if said.said_at is None else said.said_at
        return (
            covered(filters.scopes, self.scopes[session])
            and self.answers(filters, session, turn.position)
            and (not filters.roles or said.role in filters.roles)
            and (not filters.speakers or said.speaker in filters.speakers)
            and (filters.since is None or at >= filters.since)
            and (filters.until is None or at < filters.until)
            and (filters.after is None or turn.position > filters.after)
            and (filters.last is None or turn.position <= filters.last)
            and all(
                key in said.metadata and canonical(said.metadata[key]) == canonical(value)
                for key, value in filters.metadata.items()
            )
        )

    def answers(self, filters, session, position):
        if filters.spans is None:
            return filters.session in (None, session)
        is_beside = filters.beside is not None and self.roots[session] != self.roots[filters.session]
        return (is_beside and covered(filters.beside, self.scopes[session])) or any(
            span.holds(session, position) for span in filters.spans
        )

    def by_words(self, terms, filters, upto):
        """BM25 as it stands in books, over the turns up to a position."""
        held = {t.position: Counter(stems_of(t.event.text)) for t in self.turns if t.position <= upto}
        lengths = {position: words.total() for position, words in held.items()}
        holding = {term: sum(term in words for words in held.values()) for term in terms}
        chosen = sorted((count, term) for term, count in holding.items() if count)
        assert sum(count for count, _ in chosen) <= PLACES_MAX
        scores: dict[int, float] = {}
        average = sum(lengths.values()) / len(held) if held else 0.0
        for position in (turn.position for turn in self.left(filters, upto)):
            for count, term in chosen:
                if frequency := held[position][term]:
                    idf = max(log((len(held) - count + 0.5) / (count + 0.5)), 0.0) or 1e-6
                    norm = 1 - 0.75 + 0.75 * lengths[position] / average
                    score = idf * (frequency * 2.2 / (frequency + 1.2 * norm))
                    scores[position] = scores.get(position, 0.0) + score
        return sorted(scores, key=lambda position: (-scores[position], position))

    def by_vectors(self, query, filters, upto):
        """Cosine similarities, by position."""
        asked = self.encoder.encode([query])[0]
        return {turn.position: float(self.vectors[turn.position] @ asked) for turn in self.left(filters, upto)}


def filled(store, random):
    """A history with everything that decides whether a turn is left."""
    sessions, encrypted = [], []
    for number in range(random.randint(120, 220)):
        if len(sessions) < 2 or (len(sessions) < 8 and random.random() < 0.05):
            sessions.append(store.start_session(f"s{number}", scope=random.choice(SCOPES)).id)
        session = store.session(random.choice(sessions))
        step = random.random()
        if step < 0.02:
            session.rewind(turns=random.randint(1, 4))
        elif step < 0.04 and len(sessions) < 12:
            sessions.append(session.branch(f"b{number}").id)
        else:
            said = session.record(
                random.choice(ROLES),
                " ".join(random.choices(WORDS, k=random.randint(1, 9))),
                speaker=random.choice(SPEAKERS),
                said_at=random.choice([None, START + timedelta(hours=random.randint(-50, 50))]),
                metadata=random.choice(METADATA),
            )
            encrypted.append(said.position)
        if random.random() < 0.02:
            store.admin.catch_up_vectors()
        if encrypted and random.random() < 0.02:
            store.forget(positions=encrypted.pop(random.randrange(len(encrypted))))
    return sessions


def wished(random, model, sessions):
    """Options of a recall, and the same as filters: some of each, most of them none."""
    options, fields = {}, {}
    upto = random.choice([None, None, random.randint(1, model.head)])
    if random.random() < 0.4:
        options["scope"] = random.choice([random.choice(SCOPES), random.sample(SCOPES, 2)])
        fields["scopes"] = parse_scopes(options["scope"])
    if random.random() < 0.3:
        chosen = random.sample(ROLES, random.randint(1, 2))
        options["roles"], fields["roles"] = chosen, tuple(Role(role) for role in sorted(chosen))
    if random.random() < 0.3:
        options["speakers"] = random.sample(["Ada", "Bo", "Nobody"], random.randint(1, 2))
        fields["speakers"] = tuple(options["speakers"])
    for name in ("since", "until"):
        if random.random() < 0.2:
            at = START + timedelta(hours=random.randint(-60, 60))
            options[name], fields[name] = at, round(at.timestamp() * 1_000_000)
    if random.random() < 0.2:
        options["metadata"] = fields["metadata"] = random.choice(METADATA)
    if random.random() < 0.3:
        session = model.store.session(random.choice(sessions))
        if upto is not None and upto < model.started[session.id]:
            upto = None
        fields["session"] = session.id
        if random.random() < 0.7:
            options["of"], options["lineage"] = session, random.random() < 0.5
            if not options["lineage"]:
                fields["beside"] = fields.get("scopes", parse_scopes(session.scope) or None)
            seen = session if upto is None else session.at(upto)
            fields["spans"] = tuple(
                Span(turn.session, turn.position - 1, turn.position) for turn in seen.turns(limit=10_000)
            )
        else:
            options["session"] = session.id
    return options, Filters(**fields), upto


@pytest.mark.promise("P20", "filters")
def test_answers_are_those_of_a_model_that_looks_at_every_turn(tmp_path, seed, tries):
    """Any filters, as of any position, with lineage: the same turns by vectors, and by words in the same order."""
    for number in range(-(-tries // FILTERS_PER_STORE)):
        chance = random.Random(f"{seed}/{number}")
        encoder = HashEncoder(dimension=DIMENSION)
        with (
            blocks_of(64),
            MemoryStore.open(
                tmp_path / f"{number}", model=encoder, clock=FakeClock(), background=False, synchronous="NORMAL"
            ) as store,
        ):
            sessions = filled(store, chance)
            model = Model(store)
            assert store.admin.doctor(deep=True).healthy or number
            for _ in range(min(FILTERS_PER_STORE, tries)):
                _compare(model, chance, *wished(chance, model, sessions))


def _compare(model, chance, options, filters, upto):
    query = " ".join(chance.choices(WORDS, k=chance.randint(1, 4)))
    asked, of = (options, upto, query), options.pop("of", model.store)
    ask = partial(of.recall, asked="keep", min_relevance=0, weights=Weights(distinct=False))
    end = model.head if upto is None else upto
    expected = model.by_vectors(query, filters, end)
    as_of = {} if upto is None else {"as_of": upto}
    hits = ask(query, mode="vector", k=1_000, min_position=end, **options, **as_of).hits
    assert {hit.position for hit in hits} == expected.keys(), asked
    found = np.array([expected[hit.position] for hit in hits])
    assert np.all(np.diff(found) <= 1e-6), asked
    hybrid = ask(query, k=1_000, min_position=end, **options, **as_of).hits
    assert {hit.position for hit in hybrid} == expected.keys(), asked
    terms = terms_of(query)
    with projections_of(model.store).current_views().database.reading() as connection:
        by_text = found_by_text(connection, terms, k=1_000, filters=replace(filters, upto=upto))
    assert by_text == model.by_words(terms, filters, end), asked


DAMAGES = (
    "UPDATE bitmaps SET positions = zeroblob(8) WHERE field = 'scope' AND block = 1",
    "DELETE FROM bitmaps WHERE field = 'role' AND block = 0",
    "UPDATE bitmaps SET positions = x'01' WHERE field = 'scope' AND block = 1",
    "UPDATE bitmaps SET positions = x'ffff' WHERE field = 'scope'",
    "INSERT INTO bitmaps SELECT field, value, 77, positions FROM bitmaps WHERE field = 'scope' LIMIT 1",
    "UPDATE blocks SET words = words + 1 WHERE block = 1",
    "UPDATE blocks SET lengths = zeroblob(128), times = zeroblob(128)",
    "DELETE FROM blocks",
)


@pytest.mark.promise("P9")
def test_a_damaged_bitmap_is_found_and_rebuilt(tmp_path):
    """A deep check compares every block with the turns that it is made of; meanwhile nothing breaks."""
    with blocks_of(64), MemoryStore.open(tmp_path / "memory", model=None) as store:
        session = store.start_session("a", scope="acme")
        for number in range(200):
            session.record("user", f"tea number{number}")
        before = store.recall("tea", scope="acme", k=100).hits
        for damage in DAMAGES:
            with projections_of(store).current_views().database.writing() as connection:
                connection.exec_driver_sql(damage)
            with suppress(errors.ProjectionUnreadable):
                store.recall("tea", scope="acme")
            assert "views" in {found.what for found in store.admin.doctor(deep=True).findings}, damage
            assert store.admin.doctor(deep=True, fix=True).healthy, damage
            assert store.recall("tea", scope="acme", k=100).hits == before, damage


@pytest.mark.promise("P20", "filters by time")
@pytest.mark.parametrize("apart", [timedelta(microseconds=1), timedelta(hours=1), timedelta(days=30)])
def test_a_filter_by_time_is_exact_to_the_microsecond_beside_turns_said_decades_away(tmp_path, apart):
    """The times in blocks are rounded. Turns said at a limit and close to it, others long before and after."""
    micro, decades = timedelta(microseconds=1), timedelta(days=10_000)
    said = [START + number % 5 * apart for number in range(120)]
    said += [START - decades, START + decades, START - micro] * 10
    random.Random(1).shuffle(said)
    with blocks_of(64), MemoryStore.open(tmp_path / "memory", model=None, clock=FakeClock()) as store:
        session = store.start_session("a")
        turns = {session.record("user", "tea", said_at=at).position: at for at in said}
        forgotten = list(turns)[:20]
        views = projections_of(store).current_views()
        for _ in range(2):
            limits = [None, *sorted({at + off for at in turns.values() for off in (-micro, timedelta(0))})]
            with views.database.reading() as connection:
                for since, until in product(limits, limits):
                    filters = Filters(since=in_micros(since), until=in_micros(until))
                    left = {
                        position
                        for position, at in turns.items()
                        if (since is None or since <= at) and (until is None or at < until)
                    }
                    assert set(turns_left(connection, filters).positions().tolist()) == left, (since, until)
            store.forget(positions=forgotten)
            assert store.admin.doctor(deep=True).healthy
            turns = {position: at for position, at in turns.items() if position not in forgotten}


def in_micros(at):
    return None if at is None else round(at.timestamp() * 1_000_000)
