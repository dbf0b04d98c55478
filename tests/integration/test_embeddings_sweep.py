"""What no text stands for is swept out of the embedding cache, whoever writes it at that moment."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from mnemolog.projections.sql.database import ProjectionDatabase
from mnemolog.projections.sql.embeddings import EmbeddingCache, content_hash
from mnemolog.projections.sql.opening import open_engine
from mnemolog.projections.sql.packed_vectors import pack
from mnemolog.projections.vectors.lookup_by_text import sweep
from tests.support import WAIT_S, append, in_thread, start

GRACE_S = 0.3
"""How long the sweep gets to do what it must not do yet."""


@pytest.fixture
def database(tmp_path):
    path = tmp_path / "embeddings.db"
    return ProjectionDatabase(open_engine(path), path)


def vectors(*texts):
    return {content_hash(text): pack(np.ones((1, 4), dtype=np.float32)) for text in texts}


def cached(database, *texts):
    cache = EmbeddingCache(database, fingerprint="f", dimension=4)
    return [text for text in texts if cache.look_up([content_hash(text)])]


def test_texts_of_turns_stay_and_all_others_are_deleted(database, log):
    """A text counts as a whole: a part of a turn, or two turns together, is no text of a turn."""
    log.appends.transact(start("s"))
    log.appends.transact(append("s", "one", "two", "three"))
    texts = ("one", "three", "one\ntwo", "four", "thre")
    EmbeddingCache(database, fingerprint="f", dimension=4).store(vectors(*texts))
    assert sweep(database, log, upto=log.head().position) == 3
    assert cached(database, *texts) == ["one", "three"]


def test_a_text_stored_while_the_sweep_begins_is_swept_too(database, log):
    """Its writer saw the old epoch; the sweep waits for it before it looks how far the table goes."""
    log.appends.transact(start("s"))
    log.appends.transact(append("s", "alive"))
    sampled, sweeping = threading.Event(), []

    class Telling:
        """The log, telling when the sweep has looked how far the table goes."""

        def read(self, **how):
            sampled.set()
            return log.read(**how)

    def epoch():
        sweeping.append(in_thread(lambda: sweep(database, Telling(), upto=log.head().position)))
        sampled.wait(GRACE_S)
        return 0

    EmbeddingCache(database, fingerprint="f", dimension=4, epoch=epoch).store(vectors("forgotten", "alive"))
    assert sweeping[0].result() == 1
    assert sampled.wait(WAIT_S)
    assert cached(database, "forgotten", "alive") == ["alive"]


def test_a_text_read_in_an_earlier_epoch_is_not_stored(database):
    """Whoever forgets has raised it by then."""
    cache = EmbeddingCache(database, fingerprint="f", dimension=4, epoch=lambda: 2)
    cache.store(vectors("early"), read_in=1)
    cache.store(vectors("late"), read_in=2)
    assert cached(database, "early", "late") == ["late"]
