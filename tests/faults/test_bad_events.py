"""One event that cannot be used: a rebuild stops there and says where; what does not need it goes on."""

import numpy as np
import pytest

from mnemolog import MemoryStore
from mnemolog.domain.errors import EncodingFailed
from tests.support import HashEncoder

pytestmark = pytest.mark.promise("P12")
TURNS = 60
WHERE = {"first": 0, "middle": TURNS // 2, "last": TURNS - 1}
BAD = "poison"


class Moody(HashEncoder):
    """A model that refuses a word, or answers it with numbers that are none, as long as it is `moody`."""

    def __init__(self, how):
        super().__init__(dimension=16)
        self.how, self.moody = how, True

    def encode(self, texts):
        bad = [BAD in text and self.moody for text in texts]
        if any(bad) and self.how == "refused":
            raise ValueError("I do not like this")
        vectors = super().encode(texts)
        vectors[bad] = np.nan
        return vectors


def fill(store, bad, record_bad):
    """Record turns in one session, with a bad event at one place among them; return its position."""
    session, found = store.start_session("s"), 0
    for n in range(TURNS):
        if n == bad:
            found = record_bad(store)
        else:
            session.record("user", f"note number{n}")
    return found


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("how", ["refused", "not a number"])
def test_a_text_that_the_model_makes_no_vector_of_stops_a_rebuild_and_not_the_service(folder, how, where):
    """Text recall finds it; skipped only on request, listed then, and back as soon as the model accepts it."""
    encoder = Moody(how)
    with MemoryStore.open(folder, model=encoder, background=False) as store:
        bad = fill(store, WHERE[where], lambda store: store.record("s", "user", f"{BAD} note").position)
        with pytest.raises(EncodingFailed) as caught:
            store.rebuild("vectors")
        assert caught.value.position == bad
        assert store.recall(BAD, mode="text").hits[0].position == bad
        answer = store.recall("number3")
        assert answer.hits
        assert answer.vectors_cover < bad
        assert f"position {bad}" in answer.vectors_lag
        (report,) = store.rebuild("vectors", skip_bad=True)
        assert (report.built_turns, report.skipped_turns) == (TURNS - 1, 1)
        (vectors,) = store.status().vectors
        assert (vectors.state, vectors.covers, vectors.vectors) == ("current", store.head().position, TURNS - 1)
        ((position, why),) = [(turn.position, turn.why) for turn in vectors.skipped]
        assert (position, bool(why)) == (bad, True)
        assert not [item for item in store.admin.doctor(deep=True).findings if item.what == "vectors"], "it is no drift"
        assert store.recall("number3").vectors_cover == store.head().position
        encoder.moody = False
        (report,) = store.rebuild("vectors")
        assert (report.built_turns, report.skipped_turns) == (TURNS, 0)
        assert store.status().vectors[0].skipped == ()
        assert store.recall(BAD, mode="vector", k=1).hits[0].position == bad
