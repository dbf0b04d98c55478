"""Secrets that overlap, or begin at one place: all of both is replaced, under the kind of the first and longest."""

import random

import pytest

from mnemolog.domain.redaction import Found, Redaction, secrets_in

JWT = f"eyJ{'a1' * 10}.eyJ{'b2' * 10}.{'c3' * 15}"


@pytest.mark.parametrize("same_length", [False, True])
def test_nothing_of_two_overlapping_secrets_is_left(same_length):
    """Neither what only the second one covers, nor anything but them is lost."""
    rng = random.Random(1)
    text = "".join(chr(0x4E00 + place) for place in range(60))
    for _ in range(500):
        places = [sorted(rng.sample(range(61), 2)) for _ in range(rng.randrange(1, 5))]
        found = sorted((Found(*place, "x") for place in places), key=lambda item: (item.begin, -item.end))
        left = [each for each in Redaction()._replaced(text, found, same_length=same_length) if each in text]
        assert left == [each for place, each in enumerate(text) if not any(a <= place < b for a, b in places)]


def test_of_two_secrets_that_begin_together_the_longer_one_is_named():
    """A token of a header may begin as one of another kind does."""
    longer = f"Authorization: Bearer {JWT}~rest.of/it"
    first, *_, last = secrets_in(longer)
    assert (first.kind, last.kind, first.begin == last.begin) == ("authorization", "jwt", True)
    assert Redaction().value(longer) == "Authorization: Bearer [REDACTED:authorization]"
    assert Redaction().value(f"see {JWT} there") == "see [REDACTED:jwt] there"
