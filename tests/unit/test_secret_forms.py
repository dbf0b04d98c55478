"""Secrets in the forms in which tool output, logs, mails and configuration have them, and texts that only look so."""

from mnemolog.domain.redaction import Redaction, secrets_in
from tests.secret_forms import forms, texts

REPLACED, NOT_FOUND, UNTOUCHED = forms("replaced"), forms("not_found"), texts("untouched")


def test_a_secret_is_replaced_in_each_form_and_the_rest_of_the_text_stays():
    """Coloured, escaped, quoted, encoded, as name and value. What is stored holds none that could be found again."""
    changed = {form: Redaction().text(form.text) for form in REPLACED}
    assert {form.text: found for form, found in changed.items() if found != form.stored} == {}
    assert [found for found in changed.values() if secrets_in(found)] == []


def test_a_text_that_only_looks_like_a_secret_stays():
    """Placeholders, masks, variables, code, prose, hashes: a wrong replacement cannot be taken back."""
    assert {text: found for text in UNTOUCHED if (found := Redaction().text(text)) != text} == {}


def test_what_is_not_found_is_known():
    """The page on secrets lists these kinds: what is found from now on leaves this file and that list."""
    assert [form.text for form in NOT_FOUND if Redaction().text(form.text) != form.text] == []


def test_the_texts_are_enough_to_judge_the_patterns():
    """Nine of ten forms are replaced. The other texts are so many that one wrong replacement in a hundred shows."""
    assert len(REPLACED) >= 120
    assert len(REPLACED) >= 9 * len(NOT_FOUND)
    assert len(UNTOUCHED) >= 200
