"""What was taken back, seen from what a transcript has left."""

import pytest

from mnemolog.adapters.support.rewind_to_transcript import first_gone


@pytest.mark.parametrize(
    ("seen", "kept", "left"),
    [
        ("ABC", "ABC", "ABC"),
        ("ABC", "AB", "AB"),
        ("ABC", "A", "A"),
        ("ABC", "", ""),
        ("ABCDEF", "CD", "ABCD"),  # A window of a longer session.
        ("ABC", "ABX", "AB"),  # X was never recorded: it was interrupted, or a skill's.
        ("ABC", "XAB", "AB"),
        ("YYY", "YY", "YY"),  # Both begin together.
        ("AYBY", "AY", "AY"),  # The longest common run decides which Y.
        ("AYBY", "BY", "AYBY"),
        ("AYBY", "Y", "AYBY"),  # Nothing tells: the later one hides less.
        ("ABC", "XZ", "ABC"),  # Nothing in common, such as a summary: nothing is hidden.
        ("", "A", ""),
        ("", "", ""),
    ],
)
def test_texts_that_the_transcript_no_longer_has_are_undone(seen, kept, left):
    """Each letter is what a user said."""
    gone = first_gone(seen, kept, said=bool(kept))
    assert seen[:gone] == left


def test_an_undo_of_any_length_is_found_where_all_texts_differ(rng):
    """Also in a window, and between messages that were never recorded."""
    for _ in range(1_000):
        seen = [str(n) for n in range(rng.randrange(1, 12))]
        left = seen[: rng.randrange(1, len(seen) + 1)]
        window = left[rng.randrange(len(left)) :]
        kept = [text for said in window for text in ([said, "never recorded"] if rng.random() < 0.3 else [said])]
        gone = first_gone(seen, kept, said=True)
        assert seen[:gone] == left, (seen, kept)
