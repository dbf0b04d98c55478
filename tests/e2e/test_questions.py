"""What a question asks for, and what answers it: long texts, what was said again, endings of a language's words."""

import random
import re

import pytest

from mnemolog import InvalidInput, MemoryStore, NewTurn, Passage, Weights
from mnemolog.adapters.support.context import context_for, line_of
from mnemolog.domain.choices import LANGUAGES
from mnemolog.domain.events import RecallServed
from mnemolog.projections.recall.question import question, request_of
from mnemolog.projections.recall.ranking import tells_in_part, tells_of_change
from mnemolog.projections.sql.position_blocks import BLOCK
from tests.support import FakeClock, HashEncoder

QUESTION = "Where do I live now?"


@pytest.fixture
def chat(folder):
    """A home that is told once, and the same question in two sessions, each with a reply that tells nothing."""
    with MemoryStore.open(folder, model=None, clock=FakeClock()) as store:
        home = store.start_session("home")
        home.record("user", "I live in Vienna.", speaker="Ada")
        home.record("assistant", "How nice.")
        home.record("user", "I eat fish now.", speaker="Ada")
        for name, asking in (("first", "So where do I live?"), ("second", QUESTION)):
            store.start_session(name).record("user", asking, speaker="Ada")
            if name == "first":
                store.record(name, "assistant", "Let me check.")
        yield store


def texts(answer):
    """What was found, best first."""
    return [hit.text for hit in answer]


def test_what_asks_the_same_is_no_answer_and_lends_nothing_to_its_reply(chat):
    """Neither the turn that asks, nor an earlier asking; nor the word `now`, which is no topic."""
    found = chat.recall(QUESTION, mode="text")
    assert texts(found) == ["I live in Vienna."]
    assert [chat.audit.event(at).event.text for at in found.skipped] == ["So where do I live?", QUESTION]
    assert "skipped     2 turns that ask the same" in found.explain()
    assert QUESTION not in chat.context(QUESTION, mode="text").text
    kept = chat.recall(QUESTION, mode="text", asked="keep")
    assert {QUESTION, "So where do I live?"} < {*texts(kept)}
    assert kept.skipped == ()
    with pytest.raises(InvalidInput, match="asked"):
        chat.recall(QUESTION, asked="never")


def test_a_statement_that_is_the_query_is_skipped_only_as_the_newest_turn(chat):
    """A message need not be a question. The same statement of last week is an answer."""
    assert texts(chat.recall("I live in Vienna.", mode="text"))[0] == "I live in Vienna."
    newest = chat.record("second", "user", "I live in Vienna.", speaker="Ada").position
    found = chat.recall("I live in Vienna.", mode="text")
    assert (newest in found.skipped, texts(found)[0]) == (True, "I live in Vienna.")


@pytest.mark.parametrize(
    ("asked", "turn", "reply"),
    [
        ("live now", "So where do I live?", "assistant"),
        ("What did I ask about where I live?", "So where do I live?", "assistant"),
        (
            "Which appointment do I have on Tuesday?",
            "My appointment with Dr. Lang on Tuesday, is it at nine?",
            "assistant",
        ),
        ("What does Ben play?", "Ben, what do you play?", "user"),
    ],
    ids=["words alone", "askings are wanted", "a question that tells something", "a question between friends"],
)
def test_a_question_that_may_answer_is_kept(chat, asked, turn, reply):
    """A question with a fact in it, one to which another user replies, and askings where they are asked for."""
    friends = chat.start_session("friends")
    friends.record("user", turn, speaker="Ada")
    friends.record(reply, "Hm.", speaker="Ben")
    assert turn in texts(chat.recall(asked, mode="text"))


def test_a_receipt_repeats_what_was_skipped(chat):
    """Also after the answer has come, as of the position of the question."""
    receipt = chat.recall(QUESTION, mode="text", receipt=True).receipt
    chat.record("second", "assistant", "You live in Vienna.")
    assert chat.audit.event(receipt).event.asked == "skip"
    (audited,) = chat.audit.receipts().receipts
    assert audited.verdict.value == "reproduces"
    assert (
        RecallServed(query="", k=1, mode="text", head=1, candidates=1, ranking="", hits=[], scores=[], ranks={}).asked
        == "keep"
    )


@pytest.mark.parametrize(
    ("query", "kind", "topic", "whose"),
    [
        ("Can you list the order in which I brought up aspects of the boat?", "order", "the boat", "user"),
        ("Could you give me a recap of the boat, across all our conversations?", "summary", "the boat", "mine"),
        ("Could you tell me what I paid for the boat?", "answer", None, "user"),
        ("Can you remind me what you said about the boat?", "answer", None, "assistant"),
        ("In which order should I paint the boat?", "answer", None, "user"),
        ("What did you say in your summary of the boat?", "answer", None, "assistant"),
        ("Summarize everything so far.", "summary", "everything", "open"),
        ("Give me a summary.", "summary", None, "mine"),
        ("List the aspects I raised about the boat, earliest first.", "order", "List the boat", "user"),
        ("Could you give me the gist of the boat in a few lines?", "summary", "the boat", "open"),
        ("How do things stand with the boat?", "summary", "the boat", "advice"),
        ("What came in two weeks of the boat trade?", "answer", None, "open"),
    ],
)
def test_a_request_is_read_by_patterns_of_english(query, kind, topic, whose):
    """What is asked for, on which topic, and whose words; without a topic, all of it is searched for."""
    assert request_of(question(query), "en")[:3] == (kind, topic or query, whose)
    assert request_of(question(query, order="time", about="answered"), "en")[:3:2] == ("order", "assistant")
    assert request_of(question(query, order="relevance", cover=False), "de").kind == "answer"


def test_hits_of_an_order_are_the_users_in_order_of_time_and_a_receipt_repeats_them(folder):
    """By default, with the parameter, and not without either. A context of such a request shows each turn in short."""
    with MemoryStore.open(folder, model=None, clock=FakeClock(), receipts=True) as store:
        boat = store.session("boat")
        for text in (
            "We looked at a boat.",
            "The mast of the boat is broken. " + "It is a long story. " * 60,
            "A boat, a boat!",
        ):
            boat.record("user", text)
            boat.record("assistant", "The boat, then.")
        asked = "In which order did I mention the boat?"
        for found in (store.recall(asked), store.recall("boat", order="time")):
            assert ([hit.position for hit in found], found.kind) == ([2, 4, 6], "order")
        assert "asked for   the order of what was said on: the boat" in store.recall(asked).explain()
        assert [hit.role for hit in store.recall(asked, order="relevance")].count("assistant") == 1
        assert len(store.context("boat", cover=True, receipt=False).text) < 900 < len(store.context("boat").text)
        assert {item.verdict.value for item in store.audit.receipts().receipts} == {"reproduces"}
        for wrong in ({"order": "newest"}, {"about": "me"}, {"cover": "much"}):
            with pytest.raises(InvalidInput, match=next(iter(wrong))):
                store.recall("boat", **wrong)


ASKED = {
    f"Where did we leave the {thing}?": f"The {thing} is {place} now."
    for thing, place in zip(
        "kayak accordion tripod ladder sextant telescope samovar typewriter barometer toboggan".split(),  # noqa: SIM905
        "garage attic cellar shed harbour cabin kitchen office hallway barn".split(),  # noqa: SIM905
        strict=True,
    )
}
FILLER = "market bread window green table paper small evening children walked garden morning music often blue".split()  # noqa: SIM905


def long_question(point, characters, share, seed):
    chosen = random.Random(seed)
    text = "".join(" ".join(chosen.choices(FILLER, k=9)).capitalize() + ".\n" for _ in range(characters // 64))
    at = text.rfind("\n", 0, int(len(text) * share) + 1) + 1
    return f"{text[:at]}{point}\n{text[at:]}"


@pytest.fixture
def asked_of(tmp_path):
    with MemoryStore.open(tmp_path / "store", model=None) as opened:
        session = opened.session("s")
        session.record_many([{"role": "user", "text": text} for text in ASKED.values()])
        session.record_many(
            [{"role": "user", "text": f"The {word} was fine on day {n}."} for n in range(9) for word in FILLER]
        )
        yield opened


@pytest.mark.parametrize("share", [0, 0.5, 1])
@pytest.mark.parametrize("characters", [2_000, 60_000])
def test_what_a_long_question_asks_is_found_wherever_it_stands(asked_of, characters, share):
    """At its beginning, in its middle and at its end, among text about what many turns hold."""
    for seed, (point, answer) in enumerate(ASKED.items()):
        found = asked_of.recall(long_question(point, characters, share, seed), k=10)
        assert answer in [hit.text for hit in found]
        assert found.topic == point


def test_what_a_long_question_asks_is_found_among_other_questions(asked_of):
    """A turn that holds a rare word comes before turns that hold the only word of a question."""
    other = [f"{start} the {word} cheap?" for word in FILLER for start in ("Is", "Was")]
    for seed, (point, answer) in enumerate(ASKED.items()):
        random.Random(seed).shuffle(other)
        found = asked_of.recall("\n".join([*other, *other, point, *other, *other]), k=10)
        assert point in found.topic.split("\n")
        assert answer in [hit.text for hit in found]


def test_an_answer_says_what_was_read_and_repeats_after_more_was_said(asked_of):
    """The rarest words are those as of its head."""
    asked = long_question("The kayak and the sextant, please.", 20_000, 0.5, 1)
    found = asked_of.recall(asked, receipt=True)
    assert "kayak" in found.topic
    assert len(found.topic) < 700
    assert f"read        {len(found.topic)} of its {len(asked):,} characters" in found.explain()
    asked_of.session("s").record_many([{"role": "user", "text": "The kayak, the sextant."}] * 50)
    assert asked_of.audit.receipts().reproduced == 1


def test_a_long_message_is_no_answer_to_itself(asked_of):
    """A chat records it, and then recalls it."""
    asked = long_question("Where did we leave the kayak?", 5_000, 1, 1)
    assert asked_of.session("s").record("user", asked).position in asked_of.recall(asked).skipped


NOTHING = "The meeting went on for a while and nothing was decided. "
LONG = f"{NOTHING * 30}The ferries leave at nine and at noon. {NOTHING * 30}"


@pytest.fixture
def meeting(folder):
    with MemoryStore.open(folder, model=None) as opened:
        session = opened.session("trip")
        session.record("user", "When does the ferry leave?")
        session.record("assistant", LONG)
        yield opened


def hit_of(answer, text):
    return next(hit for hit in answer if hit.text == text)


def test_a_hit_on_a_long_turn_has_its_best_passage_with_its_place(meeting):
    """The place is in characters of the text."""
    hit = hit_of(meeting.recall("When does the ferry leave?"), LONG)
    assert isinstance(hit.passage, Passage)
    assert hit.text[hit.passage.start : hit.passage.end] == hit.passage.text
    assert hit.passage.text.startswith("The ferries leave at nine and at noon.")
    assert 400 < len(hit.passage.text) <= 500


@pytest.mark.parametrize("mode", ["hybrid", "vector", "text"])
def test_every_mode_has_passages_and_the_same_each_time(folder, encoder, mode):
    """Later pages and recalls as of a position too."""
    with MemoryStore.open(folder, model=encoder) as opened:
        opened.session("trip").record("user", "The ferry is red.")
        opened.session("trip").record("assistant", LONG)
        first = opened.recall("the ferry", k=1, mode=mode)
        both = (*first, *opened.recall("the ferry", k=1, mode=mode, after=first.next))
        opened.session("trip").record("user", "ferry " * 3)
        again = opened.recall("the ferry", k=2, mode=mode, as_of=first.head)
        assert [hit.passage for hit in both] == [hit.passage for hit in again]
        assert hit_of(both, LONG).passage.text.startswith("The ferries leave")


def test_the_passage_follows_the_language_of_the_store(folder):
    """Its endings are removed from the words of the query and of the turn."""
    with MemoryStore.open(folder, model=None, language="de") as opened:
        opened.session("umzug").record(
            "user", "Wir haben geredet. " * 60 + "Drei Wohnungen sind frei. " + "Na gut. " * 90
        )
        assert opened.recall("Wohnung")[0].passage.text.startswith("Drei Wohnungen sind frei.")


def test_the_command_line_prints_the_passage_with_marks_and_json_has_both(meeting, folder, run):
    """And `--full` prints all of the turn."""
    shown = run("recall", folder, "ferry leave", "--model", "none").stdout
    assert "│ … The ferries leave at nine and at noon." in shown
    assert re.search(r"… \+2,9\d\d characters, --full shows them", " ".join(shown.replace("│", " ").split()))
    assert len(shown) < 2_000
    assert "… The ferries leave" in run("recall", folder, "ferry leave", "--model", "none", "--explain").stdout
    whole = run("recall", folder, "ferry leave", "--model", "none", "--full").stdout
    assert " ".join(LONG.split()) in " ".join(whole.replace("│", " ").split())
    hits = run("recall", folder, "ferry leave", "--model", "none", "--json").json["hits"]
    (hit,) = [hit for hit in hits if hit["text"] == LONG]
    assert LONG[hit["passage"]["start"] : hit["passage"]["end"]] == hit["passage"]["text"]


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
        ("When is the grant due?", "The grant is due on 3 May.", "The grant: it is 9 June.", True),
        ("When is the grant due?", "The grant is due on 3 May.", "The grant is due in 3 months.", False),
        ("Where is the grant?", "The grant is in file 3.", "The grant is with the 9 others.", False),
        ("How much is the flight?", "The flight costs 180.", "The whole flight and hotel cost 520.", False),
        ("How much is the flight?", "The flight may cost 180 if we book.", "The flight costs 220.", False),
        ("How far do I run each week?", "I run 20 km a week.", "Did 35 km a week.", True),
    ],
)
def test_a_change_is_told_by_a_short_statement_about_the_same(query, earlier, later, tells):
    """It has a word of change, or only other numbers for a question about a value.

    A wish, an earlier time, a weekend, another person, another name and a total are none.
    """
    assert tells_of_change(query, earlier, later) is tells


def test_other_numbers_tell_of_a_change_only_of_what_is_asked_for(store):
    """Both statements have the rarest word of the question that the earlier one has."""
    chat = store.session("chat")
    chat.record("user", "My gym is 32 euros a month, the pool is in it.")
    chat.record("user", "My bus pass is 49 euros a month, the trams are in it.")
    asked = "How much do I pay for the gym a month?"
    assert "gym is 32" in store.recall(asked, min_relevance=0)[0].text
    chat.record("user", "The gym sent a letter, it is 37 euros a month.")
    assert "37" in store.recall(asked, min_relevance=0)[0].text


LONG_QUESTION = (
    "Which tram goes to the opera? I live in Vienna, near the park, with my sister. " + "I like it here. " * 10
)


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
    assert tells_in_part("Where do I live?", LONG_QUESTION, later) is tells


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
def test_no_change_is_hidden_by_what_was_said_often(bare, often, once):
    """Not in a context, whatever is said again after it."""
    chat = bare.session("s")
    texts = [often + " " * n for n in range(12)] + [often.replace(*once), often]
    changed = [chat.record("user", text) for text in texts][-2]
    context = bare.context(often, tokens=600)
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


SAID = {
    "de": ("Wir haben drei Wohnungen besichtigt.", "Wohnung"),
    "fr": ("Elles ont réservé deux chambres.", "réserver une chambre"),
    "es": ("Las habitaciones son pequeñas.", "habitación"),
    "pt": ("Fizemos as reservações ontem.", "reservação"),
    "it": ("Le prenotazioni sono confermate.", "prenotazione"),
    "en": ("We looked at three flats.", "flat"),
}


def found(asked, query, **how):
    return [hit.text for hit in asked.recall(query, mode="text", **how)]


@pytest.mark.parametrize("language", LANGUAGES)
def test_endings_of_the_language_of_a_store_are_removed(folder, language):
    """What was said in the plural is found by the singular."""
    text, query = SAID[language]
    with MemoryStore.open(folder, model=None, language=language) as store:
        store.start_session("trip").record("user", text)
        assert found(store, query) == [text]
        assert store.admin.language() == language


def test_the_language_can_be_changed_and_all_turns_are_indexed_again(folder):
    """Those from before it too; an open store of another process follows, and back again."""
    text, query = SAID["de"]
    with MemoryStore.open(folder, model=None) as store, MemoryStore.open(folder, model=None) as other:
        session = store.start_session("trip")
        session.record("user", text)
        assert (found(other, query), store.admin.language()) == ([], "en"), "unless it says otherwise"
        assert store.admin.set_language("German") is True
        assert store.admin.set_language("de") is False
        assert found(other, query) == found(store, query) == found(session, query) == [text]
        other.session("trip").record("user", "Die Wohnung ist groß.")
        assert len(found(store, "Wohnungen")) == 2
        assert other.admin.set_language("en") is True
        assert found(store, query) == found(other, query) == ["Die Wohnung ist groß."]
        assert store.admin.doctor(deep=True).healthy
    with MemoryStore.open(folder, model=None) as again:
        assert again.admin.language() == "en"


def test_an_answer_as_of_a_position_uses_the_language_of_then(folder):
    """So receipts reproduce after the language was changed: the same hits with the same scores."""
    text, query = SAID["de"]
    with MemoryStore.open(folder, model=HashEncoder(), background=False) as store:
        session = store.start_session("trip")
        for said in (text, "Eine Wohnung in Porto", "The flats of the flat hunters", "flat", "Wohnungen und flats"):
            session.record("user", said)
        questions = (query, "Wohnungen", "flat hunting", "flats")
        before = [store.recall(question, receipt=True) for question in questions]
        store.admin.set_language("de")
        session.record("user", "Noch eine Wohnung")
        assert found(store, query) != [hit.text for hit in before[0]]
        for question, answer in zip(questions, before, strict=True):
            again = store.recall(question, as_of=answer.head)
            assert [(hit.position, hit.relevance) for hit in again] == [(hit.position, hit.relevance) for hit in answer]
            assert again.hits[0].ranks == answer.hits[0].ranks
        later = [store.recall(question, receipt=True) for question in questions]
        store.rebuild("views")
        assert store.audit.receipts().sound
        store.admin.set_language("fr")
        assert store.audit.receipts().sound
        assert len(later) == len(before)


def test_after_a_change_of_language_an_open_store_scores_as_one_that_is_opened_then(folder):
    """Also where it has read the lengths of thousands of turns in words, which each language counts."""
    texts = [" ".join(["l'eau d'Italie"] * (number % 7 + 1) + ["vin"] * (number % 3)) for number in range(2 * BLOCK)]
    with MemoryStore.open(folder, model=None) as store:
        store.session("trip")
        store.record_many([NewTurn(session="trip", role="user", text=text) for text in texts])

        def ranks(asked):
            return [(hit.position, hit.ranks) for hit in asked.recall("eau et vin", mode="text", k=50)]

        english = ranks(store)
        for language in ("fr", "en"):
            store.admin.set_language(language)
            warm = ranks(store)
            with MemoryStore.open(folder, model=None) as again:
                assert ranks(again) == warm
        assert warm == english


def test_forgotten_words_leave_the_index_of_every_language(folder):
    """Forgetting after a change of language purges the stems in the new one."""
    with MemoryStore.open(folder, model=None) as store:
        session = store.start_session("trip")
        turn = session.record("user", "Geheimzahlen")
        session.record("user", "Wohnung")
        store.admin.set_language("de")
        assert found(store, "Geheimzahl") == ["Geheimzahlen"]
        store.forget(positions=turn.position)
        assert found(store, "Geheimzahl") == []
        store.admin.set_language("en")
        assert found(store, "Geheimzahlen") == []
    assert b"geheimzahl" not in (folder / "projections" / "views.db").read_bytes()


def test_open_does_not_change_the_language_of_a_store(folder):
    """It says how to; another process may rely on it."""
    with MemoryStore.open(folder, model=None, language="de") as store:
        store.start_session("trip")
    with pytest.raises(InvalidInput, match=r"this store has the language 'de'; store\.admin\.set_language\('fr'\)"):
        MemoryStore.open(folder, model=None, language="fr")
    with MemoryStore.open(folder, model=None, language="de") as store:
        assert store.admin.language() == "de"


@pytest.mark.log_file
@pytest.mark.parametrize("language", ["klingon", "", 5])
def test_a_language_that_is_not_there_is_refused_with_those_there_are(folder, language):
    """Before anything is created."""
    with pytest.raises(InvalidInput, match=r"language: .* is none of en \(english\), de \(german\), fr"):
        MemoryStore.open(folder, model=None, language=language)
    assert not folder.exists()


def test_the_language_is_chosen_on_the_command_line(tmp_path, run):
    """When a store is created, and later."""
    memory = tmp_path / "memory"
    assert run("init", memory, "--language", "de").returncode == 0
    assert run("language", memory).stdout == "de (german)\n"
    assert run("record", memory, "trip", SAID["de"][0], "--start").returncode == 0
    assert run("recall", memory, "Wohnung", "--mode", "text", "--json").json["hits"]
    assert run("language", memory, "fr", "--json").json == {"language": "fr", "changed": True}
    assert run("language", memory, "fr").stdout == "fr (french)\n"
    assert not run("recall", memory, "Wohnung", "--mode", "text", "--json").json["hits"]
    assert "is none of en (english)" in run("language", memory, "klingon").stderr
