"""`make demo`: what it tells is what happened."""

import pytest

from mnemolog import MemoryStore, demo

WITHOUT_A_MODEL = """
4. The same question as of event 3:
  We moved to Lisbon in March.

5. A fact that changed: what held when, and from which turn that is known.
  from March 2026 on Lisbon, as event 3 says
  from June 2026 on Porto, as event 12 says

6. The model changes: not here.
"""
WITH_MINILM = """
  by a model that counts letters: We moved to Lisbon in March.
  by all-MiniLM-L6-v2, which has embedded 5 turns: Our puppy hates the stairs of the new flat.

7. Why did milo answer as in step 3? The answer left a receipt, which is repeated as of then.
  event 14: 'Where do we live?' showed events (12, 3); repeated, it reproduces

8. Bob is forgotten: the keys of what he said are destroyed, and every index is purged.
  forgotten events: 1; turns with the code of his door: 0

9. The history still verifies: that something was forgotten is in it, what it was is not.
  19 events, all as they were written: True
"""


@pytest.mark.parametrize(
    ("model", "told"),
    [("no-such-model", WITHOUT_A_MODEL), pytest.param("all-MiniLM-L6-v2", WITH_MINILM, marks=pytest.mark.model)],
)
def test_the_demo_tells_its_story_on_one_screen_with_and_without_the_model(tmp_path, capsys, monkeypatch, model, told):
    """And leaves a store to look at; a second time it says what to do."""
    monkeypatch.setattr(demo, "DEFAULT_MODEL", model)
    monkeypatch.setattr("sys.argv", ["demo", str(tmp_path / "memory")])
    demo.main()
    printed = capsys.readouterr().out
    assert told in printed
    assert printed.count("\n") <= 60
    with MemoryStore.open(tmp_path / "memory", model=None) as store:
        assert store.verify().sound
    with pytest.raises(SystemExit, match="name a new folder"):
        demo.main()
