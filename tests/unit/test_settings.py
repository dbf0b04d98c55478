"""Settings in a file that others show and change."""

from __future__ import annotations

from typing import Annotated

import msgspec
import pytest

from mnemolog import InvalidInput
from mnemolog.adapters.hermes.settings import change_settings, read_settings


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """What may be chosen."""

    folder: str = ""
    hits: Annotated[int, msgspec.Meta(ge=1)] = 5


def test_what_is_chosen_is_kept_and_the_rest_stays_as_it_was(tmp_path):
    """Numbers may be text: panels know nothing else. Before, there are the defaults."""
    path = tmp_path / "new" / "config.json"
    assert read_settings(path, Chosen) == Chosen()
    assert change_settings(path, Chosen, {"hits": "7"}) == Chosen(hits=7)
    assert (
        change_settings(path, Chosen, {"folder": "here"})
        == read_settings(path, Chosen)
        == Chosen(folder="here", hits=7)
    )


@pytest.mark.parametrize("values", [{"hits": 0}, {"hits": "many"}, {"folder": None}])
def test_what_cannot_be_chosen_is_refused_and_changes_nothing(tmp_path, values):
    """The file is as it was, to the byte."""
    path = tmp_path / "config.json"
    change_settings(path, Chosen, {"hits": 7})
    before = path.read_bytes()
    with pytest.raises(InvalidInput, match=r"config\.json"):
        change_settings(path, Chosen, values)
    assert path.read_bytes() == before


@pytest.mark.parametrize("text", ["{", "[]", '{"hits": 0}', "\udcff"])
def test_a_file_that_holds_no_settings_is_named(tmp_path, text):
    """It stays for whoever wants to repair it."""
    path = tmp_path / "config.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(InvalidInput, match=r"config\.json"):
        read_settings(path, Chosen)
    assert path.exists()
