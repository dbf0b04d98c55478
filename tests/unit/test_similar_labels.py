"""The labels that resemble one that does not exist."""

from mnemolog.domain.spelling import CHARACTERS_MAX, MEASURED_MAX, closest


def test_the_labels_that_begin_alike_come_first_and_then_the_most_similar():
    """In any case."""
    labels = ["bob", "Alice-2", "alise", "zoe", "malice"]
    assert closest("ALICE", labels, count=2) == ["Alice-2", "malice"]
    assert closest("alcie", labels, count=1) == ["alise"]
    assert closest("x", []) == []


def test_many_labels_and_a_long_name_are_compared_soon(monkeypatch):
    """Only the beginning of a name is measured, and only labels that share characters with it."""
    measured = []

    def counted(matcher):
        measured.append((len(matcher.a), len(matcher.b)))
        return 0.5

    monkeypatch.setattr("mnemolog.domain.spelling.SequenceMatcher.ratio", counted)
    closest("ab" * 100_000, (f"{number}{'ba' * 1_000}" for number in range(2_000)))
    assert measured == [(CHARACTERS_MAX, CHARACTERS_MAX)] * MEASURED_MAX
