"""Settings in a file that others show and change."""

import pytest

from mnemolog import InvalidInput
from mnemolog.adapters.hermes import config
from mnemolog.adapters.hermes.config import Config


def test_what_is_chosen_is_kept_and_the_rest_stays_as_it_was(tmp_path):
    """Numbers may be text: panels know nothing else. Before, there are the defaults."""
    path = tmp_path / "new" / "config.json"
    assert config.read(path) == Config()
    assert config.change(path, {"hits": "7"}) == Config(hits=7)
    assert config.change(path, {"folder": "here"}) == config.read(path) == Config(folder="here", hits=7)


@pytest.mark.parametrize("values", [{"hits": 0}, {"hits": "many"}, {"folder": None}])
def test_what_cannot_be_chosen_is_refused_and_changes_nothing(tmp_path, values):
    """The file is as it was, to the byte."""
    path = tmp_path / "config.json"
    config.change(path, {"hits": 7})
    before = path.read_bytes()
    with pytest.raises(InvalidInput, match=r"config\.json"):
        config.change(path, values)
    assert path.read_bytes() == before


@pytest.mark.parametrize("text", ["{", "[]", '{"hits": 0}', "\udcff"])
def test_a_file_that_holds_no_settings_is_named(tmp_path, text):
    """It stays for whoever wants to repair it."""
    path = tmp_path / "config.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(InvalidInput, match=r"config\.json"):
        config.read(path)
    assert path.exists()
