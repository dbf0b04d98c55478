"""Rollouts of Codex: what is said in them, what is taken back, forks, subagents; by `import` too."""

import pytest

from mnemolog.adapters.importers import detect_format, read_turns
from mnemolog.adapters.importers.transcripts import Transcripts
from mnemolog.domain.errors import ImportRefused
from tests.e2e.transcripts.written import Codex
from tests.support import summary

A, B, C = (f"019a0000-0000-7000-8000-00000000000{number}" for number in (1, 2, 3))
TALK = ["Why does the kettle test fail?", "[tool call: shell]", "lid open", "The lid is open.", "Close it.", "Closed."]


@pytest.fixture
def talk(rollouts):
    """A rollout with two questions, a tool call, and their answers."""
    talk = Codex(rollouts, A)
    talk.line("turn_context", cwd="/home/ada/kettle", model="a-model")
    talk.say_only("<permissions instructions>Ask first.</permissions instructions>", role="developer")
    talk.say_only("# AGENTS.md instructions for /home/ada/kettle\n\n<INSTRUCTIONS>Be brief.</INSTRUCTIONS>")
    talk.context("<cwd>/home/ada/kettle</cwd>")
    talk.say("Why does the kettle test fail?")
    talk.line("response_item", type="reasoning", summary=[], encrypted_content="x")
    talk.call("shell", "call_1")
    talk.result("lid open", "call_1")
    talk.answer("The lid is open.")
    talk.say("Close it.")
    talk.answer("Closed.")
    return talk


def test_import_reads_a_rollout_as_well(talk):
    """Its format is detected from the content; what the program says to its model is left out."""
    assert detect_format(talk.path) == "codex"
    turns = list(read_turns(talk.path))
    assert [turn.text for turn in turns] == TALK
    assert [turn.role for turn in turns] == ["user", "assistant", "tool", "assistant", "user", "assistant"]
    assert {turn.session for turn in turns} == {A}
    assert turns[0].session_title == "kettle 019a0000"
    where = {"cwd": "/home/ada/kettle", "gitBranch": "main", "version": "0.98.0", "model": "a-model"}
    assert turns[0].metadata == where
    assert turns[1].tool_calls == [{"id": "call_1", "name": "shell", "arguments": '{"cmd":["ls"]}'}]
    assert turns[2].metadata == where | {"tool_call_id": "call_1"}


IN_EDITOR = "# Context from my IDE setup:\n\n## Open tabs:\n- lid.py\n\n## My request for Codex:\nGlue it.\n"
RAN = "<user_shell_command>\n<command>\nls\n</command>\n<result>\nOutput:\nlid.py\n</result>\n</user_shell_command>"


def test_only_what_was_typed_is_said_by_the_user(talk, read, said):
    """Neither the state of an editor nor the output of a command that the user ran; nor the answer of a memory."""
    for text in (IN_EDITOR, RAN, "<turn_aborted>\nstopped\n</turn_aborted>", "<image name=[Image #1]>", "</image>"):
        talk.say_only(text)
    talk.line("response_item", type="function_call", namespace="mcp__memory", name="recall", call_id="r")
    talk.result("Glue it.", "r")
    talk.undo(1)
    read()
    assert said(A) == TALK
    assert said(A, hidden=True) == [*TALK, "Glue it.", "ls", "[tool call: recall]"]


def test_a_rollout_without_envelopes_is_read(rollouts, read, said, memory):
    """Until August 2025 a line was a bare item. The only time is that of the first line."""
    talk = Codex(rollouts, A, meta=False)
    talk.put({"id": A, "timestamp": "2025-05-07T17:24:21.000Z", "instructions": None}, {"record_type": "state"})
    talk.put({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Why?"}]})
    talk.put({"type": "reasoning", "summary": []})
    talk.put({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "The lid."}]})
    assert detect_format(talk.path) == "codex"
    read()
    assert said(A) == ["Why?", "The lid."]
    assert {turn.said_at.date().isoformat() for turn in memory.session(A).turns()} == {"2025-05-07"}


def test_a_compressed_rollout_is_named_unless_its_session_is_recorded(rollouts, talk, memory, read):
    """With the command that unpacks it. Codex compresses rollouts of its archive, which were read before."""
    packed = [talk.path.with_name(talk.path.name.replace(A, session) + ".zst") for session in (A, B)]
    for path in packed:
        path.write_bytes(b"\x28\xb5\x2f\xfd\x00")
    read()
    with Transcripts(memory) as transcripts:
        report = transcripts.catch_up(packed)
    assert report.refusals == [f"{packed[1]}:1: it is compressed; unpack it with `unzstd --keep {packed[1]}`"]
    with pytest.raises(ImportRefused, match=r"unpack it with `unzstd --keep .*` first"):
        list(read_turns(packed[1]))


CALLS = {
    "apply_patch": {"type": "custom_tool_call", "name": "apply_patch", "input": "*** Begin", "call_id": "c"},
    "local_shell": {"type": "local_shell_call", "action": {"command": ["ls"]}, "call_id": "c"},
    "web_search": {"type": "web_search_call", "action": {"query": "lids"}},
}
RESULTS = ["done", {"content": "done", "success": True}, [{"type": "input_text", "text": "done"}]]


def test_every_kind_of_call_and_every_form_of_its_result_is_a_turn(rollouts):
    """Without its first line a rollout is named after the uuid at the end of its file's name."""
    talk = Codex(rollouts, A, meta=False)
    for item in CALLS.values():
        talk.line("response_item", **item)
    for output in RESULTS:
        talk.line("response_item", type="custom_tool_call_output", call_id="c", output=output)
    turns = list(read_turns(talk.path))
    assert {turn.session for turn in turns} == {A}
    assert [turn.text for turn in turns] == [*(f"[tool call: {name}]" for name in CALLS), *["done"] * 3]
    assert [turn.tool_calls[0]["name"] for turn in turns[:3]] == list(CALLS)
    assert [turn.role for turn in turns[3:]] == ["tool"] * 3


def test_a_rollout_is_a_session(talk, memory, read, read_anew, said):
    """What the file contains twice is recorded once."""
    report = read()
    assert (report.recorded, report.sessions, report.refused, report.switches) == (6, 1, 0, {"new": 1})
    assert said(A) == TALK
    assert (memory.session(A).agent, memory.session(A).scope) == ("codex", "home/ada/kettle")
    assert read().lines == 0
    assert read_anew().already_there == 6


def test_the_same_words_again_are_another_turn(talk, memory, read, said):
    """Also when another watcher reads them, which has not seen the first."""
    read()
    for _ in range(3):
        talk.say("Close it.")
        assert read().recorded == 1
    assert said(A) == [*TALK, *["Close it."] * 3]


def test_a_rollback_hides_the_last_questions(talk, memory, read, said):
    """And everything after them, in place."""
    read()
    talk.undo(1)
    talk.say("Leave it open.")
    talk.answer("As you like.")
    assert read().switches == {"rewind": 1}
    assert said(A) == [*TALK[:4], "Leave it open.", "As you like."]
    talk.undo(2)
    talk.say("Start again.")
    assert read().switches == {"rewind": 1}
    assert said(A) == ["Start again."]


def test_a_compaction_is_a_switch_in_place(talk, read, said):
    """Recorded with the turn after it."""
    talk.compact()
    talk.say("And now?")
    talk.compact()
    assert read().switches == {"new": 1, "compress": 1}
    talk.answer("Tea.")
    assert read().switches == {"compress": 1}
    assert said(A) == [*TALK, "And now?", "Tea."]


def test_a_fork_is_a_branch_at_the_point_of_the_fork(talk, rollouts, memory, read, said):
    """The lines that it begins with belong to the old session, and stay there."""
    read()
    talk.say("Thanks.")
    fork = talk.fork(rollouts, B, lines=-2, says="Is it broken?")
    report = read()
    assert (report.recorded, report.switches) == (2, {"branch": 1})
    assert said(B) == [*TALK, "Is it broken?"]
    assert memory.session(B).lineage() == [A, B]
    fork.fork(rollouts, C, says="Is it really?")
    assert read().recorded == 1
    assert said(C) == [*TALK, "Is it broken?", "Is it really?"]


@pytest.mark.parametrize("forgotten", [[0], [1, 2], [4, 5], range(6)])
def test_a_fork_written_after_a_forget_does_not_bring_it_back(talk, rollouts, memory, read, said, forgotten):
    """A forgotten turn is found by role and order: the texts of the copies are compared with nothing."""
    read()
    memory.forget(positions=[turn.position for at, turn in enumerate(memory.turns(A)) if at in forgotten])
    left = [text for at, text in enumerate(TALK) if at not in forgotten]
    fork = talk.fork(rollouts, B, says="Is it broken?")
    assert read().recorded == 1
    grandchild = fork.fork(rollouts, C)
    grandchild.undo(2)
    grandchild.say("Is it really?")
    assert read().recorded == 1
    assert (said(B), memory.session(C).lineage()) == ([*left, "Is it broken?"], [A, C])  # It leaves A before B did.
    assert said(C) == [*(text for text in left if text in TALK[:4]), "Is it really?"]


def test_a_fork_that_repeats_later_words_of_the_old_session_has_its_own_turns(talk, rollouts, read, said):
    """Only a line in the same place is a copy, whatever its words."""
    talk.say("Thanks.")
    talk.answer("Welcome.")
    talk.say("Good night.")
    read()
    talk.fork(rollouts, B, lines=-8, says="Good night.")
    assert read().recorded == 1
    assert said(B) == [*TALK, "Good night."]


def test_a_fork_made_after_a_rollback_sees_what_was_left(talk, rollouts, memory, read, said):
    """The rollback is copied with the lines."""
    talk.undo(1)
    read()
    talk.fork(rollouts, B, says="Is it broken?")
    assert read().switches == {"branch": 1}
    assert said(B) == [*TALK[:4], "Is it broken?"]


def test_a_fork_may_roll_back_turns_that_it_copied(talk, rollouts, memory, read, said):
    """Before anything is said in it. The old session keeps them, and rolls back others later."""
    read()
    fork = talk.fork(rollouts, B)
    fork.undo(1)
    fork.say("Is it broken?")
    talk.say("Thanks.")
    talk.undo(1)
    assert read().switches == {"branch": 1, "rewind": 1}
    assert said(B) == [*TALK[:4], "Is it broken?"]
    assert said(A) == TALK


@pytest.mark.parametrize("own", [False, True])
def test_a_rollback_does_not_hide_what_an_ancestor_said_later(talk, rollouts, read, said, own):
    """The same words have the same key there, but the branch left before they were said."""
    read()
    fork = talk.fork(rollouts, B, says="Is it broken?")
    if not own:
        fork.say("Start again.")
    read()
    talk.say("Start again.")
    read()
    fork.answer("No.")
    read()
    grandchild = fork.fork(rollouts, C, says="Is it really?")
    if own:
        grandchild.say("Start again.")
    read()
    grandchild.undo(1 if own else 2)
    assert read().switches == {"rewind": 1}
    assert said(C) == [*TALK, "Is it broken?", *(["No.", "Is it really?"] if own else [])]


def test_a_fork_of_an_unknown_session_is_a_session_with_all_its_turns(talk, rollouts, read, said):
    """The file of the old session is gone."""
    talk.fork(rollouts, B, says="Is it broken?")
    talk.path.unlink()
    assert read().switches == {"new": 1}
    assert said(B) == [*TALK, "Is it broken?"]


def test_a_subagent_is_a_session_below_its_parent(talk, rollouts, memory, read, said):
    """If it was forked it sees all of the parent, else nothing."""
    spawned = {"source": {"subagent": {"thread_spawn": {"parent_thread_id": A, "depth": 1}}}}
    Codex(rollouts, B, **spawned).say("Look up the lid sensor.")
    talk.fork(rollouts, C, **spawned, says="Look up the lid.")
    assert read().switches == {"new": 1}
    assert summary(memory, B).parent == A
    assert said(B) == ["Look up the lid sensor."]
    assert said(C) == [*TALK, "Look up the lid."]
    assert memory.current("codex").id == A
