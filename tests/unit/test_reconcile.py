"""What of a transcript is missing in a session, as `reconcile` decides it."""

from types import SimpleNamespace

import pytest

from mnemolog.adapters.support.reconcile import missing
from mnemolog.domain.session import new_turn


def in_session(*texts):
    return [SimpleNamespace(role=SimpleNamespace(value="user"), text=text, key=None) for text in texts]


def messages(texts):
    return [(new_turn(role="user", text=text), None) for text in texts]


def missing_of(seen, wanted):
    return "".join(turn.text for turn, _ in missing(in_session(*seen), messages(wanted)))


@pytest.mark.parametrize(
    ("seen", "wanted", "lacks"),
    [
        ("", "ABC", "ABC"),
        ("ABC", "ABC", ""),
        ("AB", "ABCD", "CD"),
        ("ABA", "ABA", ""),
        ("AB", "ABA", "A"),
        ("ABCDEF", "EF", ""),
        ("ABCDEF", "EFG", "G"),
        ("yABC", "ABCy", "y"),  # A window of a longer session, and a word that was said before it.
        ("AC", "ABC", "B"),
        ("ACB", "ABC", ""),  # B was missing in the middle and is at the end now.
        ("BDFACE", "ABCDEF", ""),
        ("ABCX", "ABC", ""),
    ],
)
def test_only_messages_that_the_session_lacks_are_missing(seen, wanted, lacks):
    """A transcript may be a window of the session, or have a new message in its middle."""
    assert missing_of(seen, wanted) == lacks


def test_passing_a_transcript_again_soon_adds_nothing(rng):
    """Whatever the session held before; mostly at the second time."""
    at_once = 0
    for _ in range(2_000):
        seen, wanted = ("".join(rng.choices("ABCDEFGH", k=rng.randrange(10))) for _ in range(2))
        times = 0
        while lacks := missing_of(seen, wanted):
            seen, times = seen + lacks, times + 1
            assert times <= 5, (seen, wanted)
        at_once += times <= 1
    assert at_once > 1_000


def test_a_transcript_that_only_grew_is_not_aligned(monkeypatch):
    """The alignment takes quadratic time: hours for 10,000 times the same word."""
    monkeypatch.setattr("mnemolog.adapters.support.reconcile.SequenceMatcher", None)
    assert missing_of("A" * 10_000, "A" * 10_000) == ""
    assert missing_of("A" * 9_999, "A" * 10_000) == "A"
