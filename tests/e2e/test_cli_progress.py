"""What a command shows while it works, on a terminal."""

import json
import re

import pytest

from mnemolog import MemoryStore
from mnemolog.cli.command import bar, phases
from mnemolog.domain.display import Bytes
from mnemolog.projections.sql import projection
from mnemolog.projections.sql.conversation_views import Views
from tests.support import wait_until

pytestmark = pytest.mark.local

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture
def memory(folder):
    with MemoryStore.open(folder, model=None) as store:
        store.start_session("s").record("user", "My dog is called Rex.", key="k")
    return folder


def frames(drawn):
    """The texts that were drawn, without the codes that move the cursor."""
    return [text for text in re.split(r"[\r\n]+", ESCAPES.sub("", drawn)) if text.strip()]


def test_a_recall_says_that_it_searches(memory, terminal):
    """Seconds without a sign of life look like a hang."""
    drawn = frames(terminal("recall", memory, "dog", "--model", "none", kind="xterm").stdout)
    assert any("searching" in text for text in drawn)
    assert any("My dog is called Rex." in text for text in drawn)


def test_the_phases_of_an_import_are_named(folder, tmp_path, terminal):
    """Reading, indexing and embedding are different waits."""
    MemoryStore.open(folder, model=None).close()
    lines = [json.dumps({"session": "s", "key": str(n), "role": "user", "text": f"turn {n}"}) for n in range(700)]
    (tmp_path / "turns.jsonl").write_text("\n".join(lines))
    drawn = frames(terminal("import", folder, tmp_path / "turns.jsonl", "--model", "none", kind="xterm").stdout)
    seen = [name for text in drawn for name in ("reading", "indexing") if name in text]
    assert seen[0] == "reading"
    assert seen[-1] == "indexing"
    assert drawn[-1].startswith("700 turns read from 1 file, 700 recorded, 0 already there, 1 session")


def test_a_rebuild_has_a_bar_for_each_projection(memory, terminal):
    """The vectors do not go on with the bar of the views, full from the start."""
    drawn = frames(terminal("rebuild", memory, "--dry-run", kind="xterm", columns=100).stdout)
    assert any("rebuilding views" in text for text in drawn)
    assert any("rebuilding vectors" in text for text in drawn)


def test_percentages_and_remaining_times_are_honest(screen):
    """No 100 % and no 0:00:00 before a phase has ended, also where its work is counted twice."""
    with screen(kind="xterm", columns=100) as drawn, phases() as phase:
        move = phase("checking")
        for done, then in ((500, "50%"), (999, "99%"), (1000, "finishing"), (600, "600/1,000"), (1000, "finishing")):
            drawn.clear()  # The work is counted twice.
            move(done, 1000)
            wait_until(lambda then=then: then.encode() in drawn, what=f"{then} to be drawn")
            assert not re.search(b"100%|0:00:00", drawn)
        phase("writing")
        for _ in range(2):  # What was drawn before may have come in with the first.
            drawn.clear()
            wait_until(lambda: b"writing" in drawn, what="the next phase")
        assert b"finishing" not in drawn


def test_bytes_are_shown_in_megabytes(screen):
    """Of a file that is read, or copied: share, count and rate."""
    with screen(kind="xterm", columns=100) as drawn, bar("reading") as move:
        for done in (1_000_000, 2_000_000, 3_000_000):
            move(done, Bytes(4_000_000))
        wait_until(lambda: b"75%" in drawn and b"3.0 MB/4.0 MB" in drawn and b"MB/s" in drawn, what="the figures")


def test_the_phases_of_a_copy_are_named(memory, tmp_path, terminal):
    """What is copied is verified."""
    terminal("backup", memory, tmp_path / "backup", kind="xterm")
    for words in (("restore", tmp_path / "backup", tmp_path / "restored"), ("copy", memory, tmp_path / "restored")):
        drawn = frames(terminal(*words, kind="xterm", columns=100).stdout)
        seen = [name for text in drawn for name in ("copying", "verifying") if name in text]
        assert (seen[0], seen[-1]) == ("copying", "verifying"), words


def test_whatever_reads_shows_that_it_indexes_first(memory, tmp_path, terminal, monkeypatch):
    """After a restore it takes as long as an import."""
    monkeypatch.setattr(projection, "SAVED_TOGETHER", 1)
    monkeypatch.setattr(Views, "batch_max", 1)
    assert any("indexing" in text for text in frames(terminal("sessions", memory, kind="xterm", columns=100).stdout))


@pytest.mark.parametrize(
    ("moves", "notes"),
    [
        ([], []),
        ([(500, 2_000)], ["copying stopped at 500 of 2,000 events"]),
        ([(2_000, 2_000), (700, 3_000)], ["verifying stopped at 700 of 3,000 events"]),
        ([(500, Bytes(2_000))], []),
        ([(2_000, Bytes(2_000)), (2_000, Bytes(2_000)), (700, 3_000)], ["verifying stopped at 700 of 3,000 events"]),
    ],
)
def test_after_ctrl_c_it_is_said_how_far_the_work_was(moves, notes):
    """Also where nothing was drawn. Bytes of a file say nothing of what is kept."""

    def work(move):
        for done, total in moves:
            move(done, total)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught, bar("copying", "verifying") as move:
        work(move)
    assert getattr(caught.value, "__notes__", []) == notes


def test_a_pipe_gets_no_progress(capfd):
    """Logs and `--json` are not for bars."""
    with phases() as phase:
        phase("reading")(1, 2)
    assert capfd.readouterr() == ("", "")
