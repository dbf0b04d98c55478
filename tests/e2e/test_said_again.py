"""What was said again: word for word, which takes one place, and in other words later, which is pointed to."""

import pytest

from mnemolog import MemoryStore, Weights
from mnemolog.adapters.support.context import context_for, line_of
from mnemolog.projections.recall.ranking import tells_in_part, tells_of_change

OLD, NEW = "I live in Vienna with my sister.", "I live in Graz with my sister now."


@pytest.mark.local
def test_the_first_hit_points_to_what_the_same_user_said_later(store):
    """A context shows that too, and the explanation; nothing points to another user, a question or an answer."""
    for scope, speaker, text in (
        ("acme/ada", "Ada", OLD),
        ("acme/ada", "Ada", "Do I live in Vienna with my sister, or in Graz?"),
        ("acme/ada", "Ben", "I live in Linz with my sister now."),
        ("acme/cleo", "Ada", "I live in Wels with my sister now."),
    ):
        store.session(f"{scope}/{speaker}", scope=scope).record("user", text, speaker=speaker)
    store.record("acme/ada/Ada", "assistant", "I live in a computer with my sister.")
    asked = {"scope": "acme", "since": None}
    assert store.recall("Vienna", **asked)[0].newer is None
    newer = store.record("acme/ada/Ada", "user", NEW, speaker="Ada")
    found = store.recall("Vienna", **asked)
    assert (found[0].text, found[0].newer) == (OLD, newer)
    assert [hit.newer for hit in found[1:]] == [None] * (len(found) - 1)
    assert f"see also @{newer.position}, later: {NEW}" in found.explain()
    assert f"(see also @{newer.position}, later): {OLD}" in store.context("Vienna", **asked).text
    assert newer.position in store.context("Vienna", 300, **asked).positions
    here = store.session("acme/ada/Ada")
    lines = [line_of(hit) for hit in context_for(here, "Vienna", scope="acme", fresh=True)]
    assert lines[0].endswith(f"Ada: {OLD}\n  see also, {newer.said_at:%Y-%m-%d}: {NEW}")
    known = context_for(here, "Vienna", scope="acme", fresh=True, known_after=newer.position - 1)
    assert [hit.newer for hit in known] == [None] * len(known)
    assert store.recall("Vienna", as_of=newer.position - 1, **asked)[0].newer is None


def test_what_tells_of_a_change_comes_before_what_it_changes(store):
    """For a question about the present, on every page and in a receipt, and with the relevance of what it changes.

    Not for one about the past, a search for words, or without the weight.
    """
    chat = store.session("chat")
    older = chat.record("user", OLD)
    chat.record("user", "The weather in Vienna is fine.")
    newer = chat.record("user", NEW)
    asked = "Where do I live with my sister?"
    answer = store.recall(asked, min_relevance=0, receipt=True)
    assert [hit.position for hit in answer][:2] == [newer.position, older.position]
    first, second = answer[0], answer[1]
    assert (first.newer, second.newer) == (None, newer)
    assert first.relevance == pytest.approx(second.relevance, abs=1e-3)
    assert first.score_parts["currency"] > 0 == second.score_parts["currency"]
    assert "tells of a change" in answer.explain()
    for k in (1, 2, 90):
        page = store.recall(asked, k=k, min_relevance=0)
        assert (page[0].position, page[0].relevance) == (newer.position, first.relevance)
    page = store.recall(asked, k=1, min_relevance=0, as_of=answer.head)
    assert store.recall(asked, k=1, min_relevance=0, as_of=answer.head, after=page.next)[0].text == OLD
    assert [item.verdict for item in store.audit.receipts().receipts] == ["reproduces"]
    for query, weights in (
        ("Where did I live with my sister?", Weights()),
        ("live with my sister", Weights()),
        (asked, Weights(currency=0)),
    ):
        assert "currency" not in store.recall(query, min_relevance=0, weights=weights)[0].score_parts
    assert store.recall(asked, min_relevance=0, as_of=newer.position - 1)[0].text == OLD


@pytest.mark.parametrize(
    ("query", "earlier", "later", "tells"),
    [
        ("Who is my doctor?", "My doctor is Dr. Hall.", "Dr. Hall retired, I see Dr. Okafor.", True),
        ("When is the grant due?", "The grant is due in May.", "They extended the grant to June.", True),
        ("When is the grant due?", "The grant is due in May.", "The grant is due in June.", False),
        ("Where do I live?", "I live in Vienna.", "My cousin moved to Kiel.", False),
        ("Where do I live?", "I live in Vienna.", "I want to live in Graz now.", False),
        ("Where do I live?", "I live in Vienna.", "Before that I moved to Graz.", False),
        ("Where do I live?", "I live in Vienna.", "I'm staying in Graz for the weekend now.", False),
        ("What does Emma play?", "Our Emma plays the violin.", "Our Noah started to play drums.", False),
        ("Where do my parents live?", "My parents live in Kassel.", "I moved to Kiel.", False),
        ("Where do I live?", "I live in Vienna.", "I moved to Graz. " + "And more. " * 20, False),
    ],
)
def test_a_change_is_told_by_a_short_statement_about_the_same(query, earlier, later, tells):
    """It has a word of change. A wish, an earlier time, a weekend, another person and another name are none."""
    assert tells_of_change(query, earlier, later) is tells


LONG = "Which tram goes to the opera? I live in Vienna, near the park, with my sister. " + "I like it here. " * 10


@pytest.mark.parametrize(
    ("sentence", "tells"),
    [
        ("I moved to Graz.", False),
        ("I left Vienna for Graz.", True),
        ("The opera left Vienna for Graz.", False),
        ("I moved to Graz, and live by the river now.", True),
        ("Have I left Vienna for Graz?", False),
        ("I left Vienna for the weekend.", False),
    ],
)
def test_a_sentence_of_a_long_turn_tells_of_a_change(sentence, tells):
    """Of the user, and about what the question or the sentence that answers it is about; a question tells nothing."""
    later = f"{'The weather is fine. ' * 10}{sentence} How do I get a permit?"
    assert tells_in_part("Where do I live?", LONG, later) is tells


@pytest.mark.parametrize(
    ("others", "places"),
    [
        ([("user", "Ada", "a", "My number ends in 4411.")], 1),
        ([("user", "Ada", "a", "My number ends in 9090.")], 2),
        ([("user", "Ada", "a", "My number ends not in 4411.")], 2),
        ([("user", "Ben", "a", "My number ends in 4411.")], 2),
        ([("user", "Ada", "b", "My number ends in 4411.")], 2),
        ([("assistant", "Ada", "a", "My number ends in 4411.")], 2),
    ],
    ids=["the same", "a number", "a negation", "a speaker", "a scope", "a role"],
)
def test_a_text_that_is_repeated_takes_one_place(store, others, places):
    """Of one role, speaker and scope. The hit has the others; with `distinct=False` each is a hit of its own."""
    said = [("user", "Ada", "a", "My number ends in 4411.")] * 6 + others
    for n, (role, speaker, scope, text) in enumerate(said):
        store.session(f"s{n}", scope=scope).record(role, text, speaker=speaker)
    found = store.recall("What does my number end in?", k=5)
    assert len(found) == places
    assert sorted(len(hit.repeated) for hit in found) == [0] * (places - 1) + [5 + (places == 1)]
    assert f"said {6 + (places == 1)} times" in found.explain()
    assert len(store.recall("What does my number end in?", k=9, weights=Weights(distinct=False))) == 7


@pytest.mark.parametrize(
    ("often", "once"),
    [
        ("Reminder: the dentist is on Monday at nine, please bring the card of Anna with you.", ("Anna", "Bert")),
        ("Reminder: the big meeting of the whole team takes place in Linz, in the old hall.", ("Linz", "Graz")),
        ("Bitte an alle: wir treffen uns wie immer am Abend vor dem alten Haus am See.", ("uns wie", "uns nicht wie")),
        ("Reminder: the train to the coast leaves at 7:40 from the platform near the clock.", ("7:40", "8:10")),
    ],
)
def test_no_change_is_hidden_by_what_was_said_often(tmp_path, often, once):
    """Not in a context, whatever is said again after it."""
    with MemoryStore.open(tmp_path / "store", model=None) as store:
        chat = store.session("s")
        texts = [often + " " * n for n in range(12)] + [often.replace(*once), often]
        changed = [chat.record("user", text) for text in texts][-2]
        context = store.context(often, tokens=600)
        assert changed.position in context.positions
        assert changed.position not in [item.position for item in context.left_out]


BEFORE = (
    "Reminder:",
    "Just a reminder:",
    "Don't forget:",
    "Please remember:",
    "One more reminder:",
    "Friendly reminder:",
)
AFTER = ("", ", as always", ", please")


@pytest.mark.parametrize("place", [7, 8, 9, 12], ids="at {}".format)
@pytest.mark.parametrize(
    ("often", "change"),
    [
        ("the dentist is on Tuesday at nine", "Reminder: the dentist is on Thursday at eleven."),
        ("the dentist is on Tuesday at nine", "Please remember: the dentist on Thursday at eleven from now on."),
        ("the dentist is on Tuesday at 9:15", "The dentist is on Tuesday, but at 10:45 this time."),
        ("the dentist is on Tuesday at nine", "Reminder: the dentist on Tuesday at nine is cancelled."),
    ],
)
def test_no_change_is_hidden_by_what_was_said_in_nearly_the_same_words(tmp_path, often, change, place):
    """It is among ten hits and in a context. What was said often comes after them, and nothing is left out."""
    texts = [f"{before} {often}{after}." for after in AFTER for before in BEFORE][:12]
    texts.insert(place, change)
    with MemoryStore.open(tmp_path / "store", model=None) as store:
        chat = store.session("s")
        for text in texts:
            chat.record("user", text)
            chat.record("assistant", f"Noted. Which dentist do you see, number {len(text)}?")
        found = store.recall("When is the dentist?", k=10)
        assert change in [hit.text for hit in found]
        assert change in store.context("When is the dentist?", 300).text
        every = store.recall("When is the dentist?", k=30, min_relevance=0)
        assert {*texts} <= {hit.text for hit in every}
        assert found.hits == every.hits[:10]
