"""A new node starts from a copy of the folder of another one."""

import shutil

import pytest

from mnemolog import MemoryStore
from tests.support import HashEncoder

pytestmark = pytest.mark.local

TURNS = 40


@pytest.fixture
def copied(opened, tmp_path):
    """A copy of the folder of a closed node with vectors in a segment and in the cache."""
    with opened("one") as one:
        for n in range(TURNS):
            one.session("trip").record("user", f"the ferry number {n} leaves")
        one.admin.catch_up_vectors()
        for n in range(TURNS, TURNS + 3):
            one.session("trip").record("user", f"the ferry number {n} leaves")
        assert one.recall(f"ferry {TURNS + 2}", mode="vector").hits
        path = one.path
    shutil.copytree(path, tmp_path / "copy")
    return tmp_path / "copy"


def test_a_new_node_embeds_what_was_recorded_since_and_nothing_again(opened, copied):
    """It is opened as any folder: it knows its log, and is a node of its own. Another model embeds for itself."""
    encoder, other = HashEncoder(), HashEncoder(fingerprint="another/1")
    with MemoryStore.open(copied, model=encoder, background=False) as two:
        assert two.status().views.state == "current"
        two.admin.catch_up_vectors()
        assert encoder.texts_encoded == 0
        assert two.recall(f"the ferry number {TURNS + 2} leaves", mode="vector", k=1).hits[0].position == TURNS + 4
        assert len(two.admin.nodes()) == 2
        assert two.admin.doctor(deep=True).healthy
        encoded = encoder.texts_encoded
        with opened("one") as one:
            one.session("trip").record("user", "and comes back at six")
        two.admin.catch_up_vectors()
        assert encoder.texts_encoded == encoded + 1
        assert two.recall("comes back").hits[0].text == "and comes back at six"
    with MemoryStore.open(copied, model=other, background=False) as two:
        two.admin.catch_up_vectors()
        assert other.texts_encoded == TURNS + 4
