"""Groups of turns that share a vector: told by the log alone, never mixed, never stale, never missing."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from mnemolog import EncodingFailed, InvalidInput, MemoryStore
from mnemolog.adapters.support.store_access import log_of
from mnemolog.cli import application
from mnemolog.domain.events import (
    CheckpointRestored,
    NoteAdded,
    RecordedEvent,
    SessionEnded,
    SessionResumed,
    SessionSwitched,
    TurnsRewound,
)
from mnemolog.domain.session import session_stream
from mnemolog.projections.vectors.grouping import fold, recipe
from mnemolog.projections.vectors.manifest import read_manifest
from mnemolog.projections.vectors.rendering import RECIPE
from tests.faults.tamper import rewrite_manifest
from tests.support import FakeClock, HashEncoder, projections_of, started, turn

SESSIONS = ("a", "b", "c")

# One event of a random log: what it is, the session it is about, and for a switch where it goes.
OPERATIONS = st.tuples(
    st.sampled_from(["turn"] * 12 + ["end", "switch", "rewind", "restore", "resume", "note", "arrive"]),
    st.sampled_from(SESSIONS),
    st.sampled_from(SESSIONS),
)
LOGS = st.lists(OPERATIONS, max_size=60)


def event_of(operation, number):
    """The stream and the event that an operation stands for."""
    kind, session, to = operation
    stream = session_stream(session)
    return {
        "turn": (stream, turn(f"word{number} said in {session}", role=("user", "assistant")[number % 2])),
        "end": (stream, SessionEnded()),
        "switch": ("agent/x", SessionSwitched(from_=session, to=to, reason="new")),
        "arrive": ("agent/x", SessionSwitched(from_=None, to=to, reason="new")),
        "rewind": (stream, TurnsRewound(to=1)),
        "restore": (stream, CheckpointRestored(id="c", position=1)),
        "resume": (stream, SessionResumed()),
        "note": (stream, NoteAdded(text="remember")),
    }[kind]


def recorded(operations):
    """The events of a log that holds nothing else, from position 1."""
    events = [event_of(operation, number) for number, operation in enumerate(operations)]
    return [
        RecordedEvent(position=n, stream=stream, version=n, recorded_at=n, key=None, event=event)
        for n, (stream, event) in enumerate(events, 1)
    ]


def expected_groups(operations, every, *, first=1):
    """Closed groups as (closing position, turns) and open ones as lists of turns, said another way.

    Every session's own tape of turns and breaks is cut at the breaks, and each piece into groups.
    """
    tapes = defaultdict(list)
    for position, (kind, session, _) in enumerate(operations, first):
        if kind == "turn":
            tapes[session].append(position)
        elif kind in ("end", "switch", "rewind", "restore"):
            tapes[session].append(-position)
    closed, still_open = [], []
    for tape in tapes.values():
        while tape:
            cut = next((n for n, mark in enumerate(tape) if mark < 0), None)
            piece, tape = (tape, []) if cut is None else (tape[: cut + 1], tape[cut + 1 :])
            turns = [mark for mark in piece if mark > 0]
            for start in range(0, len(turns), every):
                group = turns[start : start + every]
                if len(group) == every:
                    closed.append((group[-1], group))
                elif cut is not None:
                    closed.append((-piece[-1], group))
                else:
                    still_open.append(group)
    return sorted(closed), sorted(still_open)


@given(LOGS, st.integers(1, 6), st.data())
def test_groups_are_those_of_a_brute_force_cut_in_whatever_steps_the_log_is_read(operations, every, data):
    """N-th turn, end, switch away, rewind and restore close; nothing else does, and steps do not matter."""
    events, opened, closed = recorded(operations), {}, []
    while events:
        step = data.draw(st.integers(1, len(events)))
        folded = fold(opened, events[:step], every=every)
        events, opened, closed = events[step:], folded.opened, closed + folded.closed
    found = [(item.at, list(item.group.turns)) for item in closed], sorted(list(g.turns) for g in opened.values())
    assert found == expected_groups(operations, every)
    for group in [item.group for item in closed] + list(opened.values()):
        assert len({operations[position - 1][1] for position in group.turns}) == 1
        assert group.text == "\n".join(f"word{p - 1} said in {operations[p - 1][1]}" for p in group.turns)


def begin(folder, encoder, every):
    """A store with sessions a, b and c of three scopes, at position 3."""
    store = MemoryStore.open(folder, model=encoder, clock=FakeClock(), retain_every_n_turns=every, background=False)
    for session in SESSIONS:
        stream, event = session_stream(session), started(session, scope=f"acme/{session}")
        log_of(store).transact(lambda tx, stream=stream, event=event: tx.append(stream, event))
    return store


def append(store, operations, *, first=0):
    """Append events as they are, past the decisions of sessions."""
    pairs = [event_of(operation, number) for number, operation in enumerate(operations, first)]
    log_of(store).transact(lambda tx: [tx.append(stream, event) for stream, event in pairs])


def snapshot(store):
    return store.vectors().projection()._generation.snapshot


def rows(segments):
    """Every group with its vectors, in order."""
    found = []
    for segment in segments:
        for number in range(len(segment.members.ends)):
            turns = segment.members.turns[segment.members.turns_of(number)].tolist()
            found.append((turns, segment.exact.take(np.flatnonzero(segment.rows == number)).tolist()))
    return found


def closed_rows(store):
    now = snapshot(store)
    return rows((*now.written, *now.tail))


def open_rows(store):
    partials = snapshot(store).partials
    return [] if partials is None else sorted(rows([partials]))


def vectors_of(store, operations, groups):
    """Groups with what the model makes of them, asked directly."""
    text = {n: f"word{n - 4} said in {operation[1]}" for n, operation in enumerate(operations, 4)}
    encode = store.vectors().encoder.encode
    return [(group, encode(["\n".join(text[n] for n in group)]).tolist()) for group in groups]


STEPS = st.lists(st.tuples(st.integers(0, 12), st.sampled_from(["catch up", "recall", "crawl", "drop", "wait"])))


@settings(max_examples=40, deadline=None)
@given(LOGS, st.integers(2, 5), STEPS)
def test_catch_up_in_any_steps_with_reopening_gives_the_rows_of_one_rebuild(operations, every, steps):
    """Also when the store object is dropped without being closed, and when a recall stops half way."""
    with tempfile.TemporaryDirectory() as where:
        folder, done = Path(where) / "memory", 0
        store = begin(folder, HashEncoder(dimension=16), every)
        for count, deed in [*steps, (len(operations), "catch up")]:
            append(store, operations[done : done + count], first=done)
            done = min(len(operations), done + count)
            if deed == "catch up":
                store.catch_up_vectors()
            elif deed == "recall":
                store.recall("word1", mode="vector")
            elif deed == "crawl":
                store.vectors().projection().catch_up(upto=store.head().position, encode_max=1)
            elif deed == "drop":
                store = MemoryStore.open(
                    folder, model=HashEncoder(dimension=16), retain_every_n_turns=every, background=False
                )
            check_coverage(store, operations[:done], every)
        closed, still_open = expected_groups(operations, every, first=4)
        assert store.vectors().projection().covers == store.head().position
        assert closed_rows(store) == vectors_of(store, operations, [group for _, group in closed])
        assert open_rows(store) == vectors_of(store, operations, still_open)
        before = closed_rows(store), open_rows(store)
        calls = len(projections_of(store).models.own.calls)
        (planned,) = store.rebuild("vectors", dry_run=True)
        (report,) = store.rebuild("vectors")
        assert (closed_rows(store), open_rows(store)) == before
        assert planned.encoded_texts == report.encoded_texts == 0
        assert len(projections_of(store).models.own.calls) == calls
        assert report.complete
        store.close()


def check_coverage(store, operations, every):
    """Every turn up to `covers` is in one group, of its own session; no closed group is served as it was before."""
    covers = store.vectors().projection().covers
    groups = [group for group, _ in rows(snapshot(store).segments)]
    held = [position for group in groups for position in group]
    turns = [n for n, operation in enumerate(operations, 4) if operation[0] == "turn"]
    assert len(held) == len(set(held))
    assert {n for n in turns if n <= covers} <= set(held) <= set(turns)
    assert all(len({operations[n - 4][1] for n in group}) == 1 for group in groups)
    closed, still_open = expected_groups(operations[: max(0, snapshot(store).closed_to - 3)], every, first=4)
    assert [group for group, _ in closed_rows(store)] == [group for _, group in closed]
    for group, _ in open_rows(store):
        assert any(whole[: len(group)] == group for whole in still_open)


def record(store, session, *texts, role="user"):
    return [store.record(session, role, text).position for text in texts]


@pytest.fixture
def four(folder, encoder):
    """A store that embeds four turns together."""
    with begin(folder, encoder, 4) as store:
        yield store


ENDS = {
    "end": lambda store: store.end_session("a"),
    "switch": lambda store: append(store, [("switch", "a", "b")]),
    "switch to itself": lambda store: append(store, [("switch", "a", "a")]),
    "rewind": lambda store: append(store, [("rewind", "a", "a")]),
    "restore": lambda store: store.session("a").restore(store.session("a").checkpoint("c").id),
}


@pytest.mark.parametrize("how", ENDS)
def test_a_group_that_is_cut_short_is_embedded_as_it_is_and_goes_to_disk(four, folder, how):
    """Two turns of a, then a break: nothing of what comes next is added to them."""
    pair = record(four, "a", "the ferry leaves", "at noon")
    ENDS[how](four)
    record(four, "b", "something else")
    four.catch_up_vectors()
    assert closed_rows(four) == [(pair, four.vectors().encoder.encode(["the ferry leaves\nat noon"]).tolist())]
    answer = four.recall("ferry noon", mode="vector", session="a")
    assert [hit.position for hit in answer.hits] == pair
    assert answer.vectors_to == answer.head


def test_a_group_open_at_a_crash_is_there_again_and_goes_on_under_its_own_session(four, folder, encoder):
    """Nothing of it is on disk; the log has it, the cache its vector."""
    pair = record(four, "a", "the ferry leaves", "at noon")
    four.catch_up_vectors()
    (status,) = four.status().vectors
    assert (status.vectors, status.open_turns, status.recipe) == (0, 2, recipe(4))
    fresh = HashEncoder()
    again = MemoryStore.open(
        folder, model=fresh, retain_every_n_turns=4, background=False
    )  # The other one is not closed.
    answer = again.recall("ferry noon", mode="vector")
    assert [(hit.position, hit.session) for hit in answer.hits] == [(position, "a") for position in pair]
    assert answer.vectors_to == answer.head
    assert fresh.calls == [["ferry noon"]]
    rest = record(again, "a", "from pier 4", "bring food")
    again.catch_up_vectors()
    text = "the ferry leaves\nat noon\nfrom pier 4\nbring food"
    assert fresh.calls[1:] == [[text]]
    assert closed_rows(again) == [(pair + rest, again.vectors().encoder.encode([text]).tolist())]
    assert open_rows(again) == []
    again.close()


def test_an_open_group_is_not_covered_before_it_is_embedded(four, folder):
    """The cache is gone and the budget small: `covers` says how far every turn has its vector."""
    for n in range(3):
        record(four, SESSIONS[n], f"first of {n}", f"second of {n}")
    four.catch_up_vectors()
    four.close()
    (folder / "projections" / "embeddings.db").unlink()
    with MemoryStore.open(folder, model=HashEncoder(), retain_every_n_turns=4, background=False) as again:
        leg = again.vectors().projection()
        assert leg.covers == 3
        assert [leg.catch_up(upto=again.head().position, encode_max=1).upto for _ in range(3)] == [5, 7, 9]
        assert [leg.catch_up(upto=again.head().position, encode_max=1).turns for _ in range(2)] == [0, 0]


def test_a_recall_that_may_embed_little_stops_before_the_group_it_leaves_out_closes(four):
    """What it leaves out is open or ahead, never half done, and the next one goes on from there."""
    turns = record(four, "a", *(f"note number{n}" for n in range(9)))
    leg, head = four.vectors().projection(), four.head().position
    assert leg.catch_up(upto=head, encode_max=1) == (turns[3], 4, 1)
    assert snapshot(four).closed_to == turns[6]
    assert [group for group, _ in closed_rows(four)] == [turns[:4]]
    assert leg.catch_up(upto=head, encode_max=1) == (turns[7], 4, 1)
    assert leg.catch_up(upto=head, encode_max=1) == (turns[8], 1, 1)
    assert [group for group, _ in closed_rows(four) + open_rows(four)] == [turns[:4], turns[4:8], turns[8:]]


def test_more_open_groups_than_a_recall_embeds_are_said_to_be_missing(folder, encoder):
    """The bound of a recall holds for sessions with one turn each, too."""
    with MemoryStore.open(folder, model=encoder, retain_every_n_turns=8, background=False) as store:
        for n in range(100):
            store.start_session(f"s{n}").record("user", f"note number{n}")
        encoder.calls.clear()
        answer = store.recall("number0", mode="vector")
        assert encoder.texts_encoded == 64 + 1
        assert answer.vectors_to == 2 * 65 - 1
        assert store.recall("number0", mode="vector").vectors_to == store.head().position


def test_no_filter_lets_a_turn_of_a_group_through_that_it_does_not_allow(four):
    """Session, scope, role and time: turn by turn, though the group has one vector."""
    asked = record(four, "a", "where is the ferry")
    said = record(four, "a", "the ferry is at pier 4", role="assistant")
    other = record(four, "b", "the ferry the ferry")
    asked += record(four, "a", "when does the ferry leave")
    said += record(four, "a", "the ferry leaves at noon", role="assistant")
    instants = {item.position: item.said_at for item in four.turns("a")}

    def found(**filters):
        return [hit.position for hit in four.recall("ferry", mode="vector", k=50, **filters).hits]

    for _ in range(2):  # In memory first, then from a segment.
        assert found(session="b") == found(scope="acme/b") == other
        assert found(session="a") == found(scope="acme/a") == sorted(asked + said)
        assert found(session="a", roles=["user"]) == asked
        assert found(session="a", roles=["assistant"]) == said
        assert found(session="a", roles=["tool"]) == []
        assert found(session="a", since=instants[said[0]], until=instants[said[1]]) == [said[0], asked[1]]
        assert sorted(found()) == sorted(asked + said + other)
        assert [hit.position for hit in four.recall("ferry", mode="vector", k=1, session="a", roles=["assistant"]).hits]
        four.catch_up_vectors()
    similarity = {hit.similarity for hit in four.recall("ferry", mode="vector", session="a").hits}
    assert len(similarity) == 1


@settings(max_examples=25, deadline=None)
@given(LOGS, st.integers(1, 5), st.sets(st.integers(4, 64)), st.integers(1, 8))
def test_search_scores_the_groups_that_hold_an_allowed_turn_and_returns_only_such_turns(operations, every, allowed, k):
    """Against a model that looks at every group, over two segments, a tail and open groups."""
    with tempfile.TemporaryDirectory() as where:
        store = begin(Path(where) / "memory", HashEncoder(dimension=16), every)
        half = len(operations) // 2
        append(store, operations[:half])
        store.catch_up_vectors()
        append(store, operations[half:], first=half)
        leg = store.vectors().projection()
        leg.catch_up(upto=store.head().position, encode_max=1_000)
        closed, still_open = expected_groups(operations, every, first=4)
        groups = vectors_of(store, operations, [group for _, group in closed] + still_open)
        query = store.vectors().encoder.encode(["word1 a"])[0]
        scored = sorted((-float(np.dot(np.float32(made[0]), query)), group[-1], group) for group, made in groups)
        wanted = [n for _, _, group in scored for n in group if n in allowed]
        found = leg.answer("word1 a", k=100, allowed=sorted(allowed)).found
        assert {n for n, _ in found} == set(wanted)
        by_score = {group[-1]: -score for score, _, group in scored}
        home = {n: group[-1] for _, _, group in scored for n in group}
        assert all(score == pytest.approx(by_score[home[n]], abs=1e-5) for n, score in found)
        assert [score for _, score in found] == sorted((score for _, score in found), reverse=True)
        assert leg.answer("word1 a", k=k, allowed=sorted(allowed)).found == found[:k]
        assert {n for n, _ in leg.answer("word1 a", k=100, allowed=None).found} == set(home)
        store.close()


def test_the_model_is_called_about_n_times_less(tmp_path):
    """128 turns of two sessions: 128 texts one by one, 16 in groups of eight, in a first build and live."""
    texts = {}
    for every in (1, 8):
        encoder = HashEncoder(dimension=16)
        with begin(tmp_path / str(every), encoder, every) as store:
            for n in range(128):
                record(store, "ab"[n % 2], f"note number{n}")
            texts[every] = store.catch_up_vectors().encoded_texts
            assert encoder.texts_encoded == texts[every]
            assert len(snapshot(store).segments[0].rows) == 128 // every
    assert texts == {1: 128, 8: 16}


def test_every_size_of_groups_has_vectors_of_its_own(folder, encoder):
    """Two handles on one folder share the log and the cache file, and never a vector."""
    with (
        begin(folder, encoder, 1) as single,
        MemoryStore.open(folder, model=encoder, retain_every_n_turns=4, background=False) as four,
    ):
        record(single, "a", *(f"note number{n}" for n in range(8)))
        for _ in range(2):
            single.catch_up_vectors(), four.catch_up_vectors()
            assert [len(group) for group, _ in closed_rows(single)] == [1] * 8
            assert [len(group) for group, _ in closed_rows(four)] == [4, 4]
            single.rebuild("vectors"), four.rebuild("vectors")
        prints = {store.recall("note").model for store in (single, four)}
        assert len(prints) == 2
        assert {item.fingerprint for item in single.status().vectors} == prints
        assert {item.recipe for item in single.status().vectors} == {recipe(1), recipe(4)}
        assert (single.status().quarantined, encoder.texts_encoded) == (0, 8 + 2 + 2)


def test_single_turns_are_kept_as_they_always_were(folder):
    """The same fingerprint whatever is added for groups, and no file that only these need."""
    encoder = HashEncoder(dimension=8)
    with begin(folder, encoder, 1) as store:
        for n in range(10):
            record(store, "ba"[n % 2], f"note number{n}")
        store.catch_up_vectors()
    (segment,) = (folder / "projections" / "vectors").glob("*/0*")
    assert recipe(1) == RECIPE == "text/2"
    assert (segment.parent.name, segment.name[:25]) == ("ee1495ffe4e0e284-0001", "000000000000-000000000013")
    names = {"manifest.json", "vectors.f32", "blocks.bin", "rows.i64", "open.i64"}
    assert {path.name for path in segment.iterdir()} == names
    assert (segment / "rows.i64").read_bytes() == np.arange(4, 14, dtype="<i8").tobytes()
    manifest = read_manifest(segment)
    assert (manifest.turns, manifest.groups, manifest.vectors, manifest.open_turns) == (10, 10, 10, 0)


def test_many_segments_of_groups_are_merged_and_stay_whole(four, folder):
    """Groups that lie across several segments' ends come out once, in the order they closed."""
    for n in range(19):
        record(four, SESSIONS[n % 3], f"note number{n}", f"more number{n}")
        four.catch_up_vectors()
    before = closed_rows(four), open_rows(four)
    four.close()
    with MemoryStore.open(folder, model=HashEncoder(), retain_every_n_turns=4, background=False) as again:
        assert (closed_rows(again), open_rows(again)) == before
        assert len(snapshot(again).written) < 12
        (status,) = again.status().vectors
        assert (status.state, status.vectors) == ("current", len(before[0]))
        again.rebuild("vectors")
        assert (closed_rows(again), open_rows(again)) == before
        assert projections_of(again).models.own.calls == []


DAMAGES = {
    "one bit of the members": lambda part: flip(part / "members.i64"),
    "one bit of the open turns": lambda part: flip(part / "open.i64"),
    "a missing list of members": lambda part: (part / "members.i64").unlink(),
    "a missing list of open turns": lambda part: (part / "open.i64").unlink(),
    "a truncated list of members": lambda part: (part / "members.i64").write_bytes(b"\0" * 8),
}


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("what", DAMAGES)
def test_a_segment_with_damaged_groups_is_set_aside_and_made_anew(four, folder, what):
    """What a group holds is trusted no further than its checksum."""
    record(four, "a", *(f"note number{n}" for n in range(6)))
    four.catch_up_vectors()
    before = closed_rows(four), open_rows(four)
    four.close()
    (segment,) = (folder / "projections" / "vectors").glob("*/0*")
    DAMAGES[what](segment)
    with MemoryStore.open(folder, model=HashEncoder(), retain_every_n_turns=4, background=False) as again:
        again.catch_up_vectors()
        assert (closed_rows(again), open_rows(again)) == before
        assert again.status().quarantined == 1
        assert projections_of(again).models.own.calls == []


def test_a_segment_of_another_recipe_is_set_aside(four, folder):
    """Even if it says that it comes from the same model."""
    record(four, "a", *(f"note number{n}" for n in range(4)))
    four.catch_up_vectors()
    before = closed_rows(four)
    four.close()
    (segment,) = (folder / "projections" / "vectors").glob("*/0*")
    rewrite_manifest(segment, recipe=recipe(8))
    with MemoryStore.open(folder, model=HashEncoder(), retain_every_n_turns=4, background=False) as again:
        again.catch_up_vectors()
        assert closed_rows(again) == before
        (reason,) = (folder / "projections" / "quarantine").glob("*.reason.json")
        assert "another recipe" in reason.read_text()


class Halves(HashEncoder):
    """A model that reads eight words at a time and refuses what is poison."""

    def chunks(self, texts):
        words = [text.split() for text in texts]
        return [[" ".join(w[n : n + 8]) for n in range(0, len(w), 8)] for w in words]

    def encode(self, texts):
        if any("poison" in text for text in texts):
            raise RuntimeError("no")
        return super().encode(texts)


def test_a_group_beyond_the_window_is_cut_into_chunks_and_found_by_the_best(folder):
    """Nothing of a long group is dropped; its turns come once."""
    with begin(folder, Halves(dimension=64), 3) as store:
        turns = record(store, "a", "one two three four five six", "seven eight nine ten", "the ferry leaves at noon")
        record(store, "b", "quite another thing")
        for _ in range(2):
            hits = store.recall("ferry noon", mode="vector", k=10).hits
            assert [hit.position for hit in hits][:3] == turns
            assert len(hits) == 4
            store.catch_up_vectors()
        assert len(snapshot(store).written[0].rows) == 2
    with MemoryStore.open(folder, model=Halves(dimension=64), retain_every_n_turns=3, background=False) as again:
        assert [hit.position for hit in again.recall("ferry noon", mode="vector", k=2).hits] == turns[:2]


def test_a_group_that_the_model_refuses_is_named_by_its_last_turn_and_what_came_before_is_kept(folder):
    """As with single turns: the position is what an operator can look up."""
    with begin(folder, Halves(dimension=16), 2) as store:
        good = record(store, "a", "fine", "fine too")
        store.catch_up_vectors()
        bad = record(store, "b", "poison", "behind it")
        with pytest.raises(EncodingFailed) as caught:
            store.catch_up_vectors()
        assert caught.value.position == bad[-1]
        assert store.vectors().projection().covers == good[-1]
        assert [group for group, _ in closed_rows(store)] == [good]


@pytest.mark.parametrize("every", [0, -1, 33, 1.0, True, "4", None])
def test_a_number_of_turns_that_makes_no_sense_is_refused_before_anything_is_made(folder, every):
    """1 to 32, and no folder is left behind."""
    with pytest.raises(InvalidInput, match="retain_every_n_turns"):
        MemoryStore.open(folder, model=None, retain_every_n_turns=every)
    assert not folder.exists()


COMMANDS = {
    "recall": ["recall", "{}", "noon"],
    "rebuild": ["rebuild", "{}", "views"],
    "import": ["import", "{}", "{}/f"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_that_take_a_model_take_the_size_of_groups(folder, command, monkeypatch):
    """The option reaches the store; a number out of range is wrong usage."""
    MemoryStore.open(folder, model=None).close()
    (folder / "f").write_text('{"session": "x", "text": "hello", "key": "1"}\n')
    asked, real = [], MemoryStore.open.__func__

    def spy(cls, *arguments, retain_every_n_turns=1, **options):
        asked.append(retain_every_n_turns)
        return real(cls, *arguments, retain_every_n_turns=retain_every_n_turns, **options)

    monkeypatch.setattr(MemoryStore, "open", classmethod(spy))
    arguments = [part.format(folder) for part in COMMANDS[command]] + ["--model", "none"]
    assert CliRunner().invoke(application(), [*arguments, "--retain-every", "8"]).exit_code == 0
    assert CliRunner().invoke(application(), arguments).exit_code == 0
    assert CliRunner().invoke(application(), [*arguments, "--retain-every", "33"]).exit_code == 2
    assert asked == [8, 1]
