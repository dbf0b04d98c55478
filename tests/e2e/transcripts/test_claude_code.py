"""Transcripts of Claude Code: sessions, what was edited, forks, compactions, subagents."""

import pytest

from mnemolog.adapters.importers import import_files, read_turns
from tests.e2e.transcripts.written import Claude
from tests.support import summary

A, B, C = (f"{letter * 8}-0000-4000-8000-00000000000{number}" for number, letter in enumerate("abc", start=1))


@pytest.fixture
def talk(projects):
    """A session with two questions and their answers; `asked` and `answered` are the uuids."""
    talk = Claude(projects, A)
    talk.hook()
    talk.asked = [talk.say("Why does the kettle test fail?")]
    talk.answered = [talk.answer("The lid is open.")]
    talk.asked.append(talk.say("Close it."))
    talk.hook()
    talk.answered.append(talk.answer("Closed."))
    return talk


TALK = ["Why does the kettle test fail?", "The lid is open.", "Close it.", "Closed."]


def test_a_transcript_is_a_session(talk, memory, read, read_anew, said):
    """Under its own id, of the agent, in the folder that it works in; each turn once, under its line's uuid."""
    report = read()
    assert (report.recorded, report.sessions, report.refused) == (4, 1, 0)
    assert said(A) == TALK
    session = memory.session(A)
    assert (session.agent, session.scope, session.title) == ("claude-code", "home/ada/kettle", "kettle aaaaaaaa")
    assert [turn.key for turn in session.turns()] == ["aaaaaa-0002", "aaaaaa-0003", "aaaaaa-0004", "aaaaaa-0006"]
    assert memory.current("claude-code").id == A
    assert read().lines == 0
    assert read_anew().already_there == 4
    talk.say("Thanks.")
    report = read()
    assert (report.lines, report.recorded) == (1, 1)
    assert said(A) == [*TALK, "Thanks."]


def test_an_edited_question_is_hidden(talk, memory, read, said):
    """A question that continues an earlier line replaces the one that followed it, in the same session."""
    read()
    talk.say("Leave it open.", after=talk.answered[0])
    talk.answer("As you like.")
    assert read().switches == {"rewind": 1}
    assert said(A) == [*TALK[:2], "Leave it open.", "As you like."]
    assert said(A, hidden=True) == [*TALK, "Leave it open.", "As you like."]


def test_parallel_tool_calls_are_not_edits(talk, read, said):
    """Results continue the line of their call, and the answer continues one of them."""
    first = talk.call("Bash", "t1")
    second = talk.call("Read", "t2")
    talk.result("one", "t1", after=first)
    talk.result("two", "t2", after=second)
    talk.answer("Both.", after=talk.last)
    talk.say("Go on.")
    assert read().switches == {"new": 1}
    assert said(A)[4:] == ["[tool call: Bash]", "[tool call: Read]", "one", "two", "Both.", "Go on."]


def test_a_line_that_continues_a_hidden_one_is_a_branch(talk, memory, read, said):
    """Another window has the session open and continues where it was."""
    read()
    talk.say("Leave it open.", after=talk.answered[0])
    left = talk.last
    talk.answer("Now it boils.", after=talk.answered[1])
    late = talk.last
    talk.answer("As you like.", after=left)
    talk.say("Good.", after=late)
    assert read().switches == {"rewind": 1, "branch": 1}
    assert said(A) == [*TALK[:2], "Leave it open.", "As you like."]
    assert said(f"{A}~{late}") == [*TALK, "Now it boils.", "Good."]


def test_a_compaction_is_a_switch_in_place(talk, memory, read, said):
    """The summary is not a turn; the session continues."""
    talk.compact()
    talk.say("And now?")
    assert read().switches == {"new": 1, "compress": 1}
    assert said(A) == [*TALK, "And now?"]
    assert memory.current("claude-code").id == A


def test_history_that_is_written_again_counts_once(talk, read, said):
    """A second compaction copies the lines before the first, and its own boundary continues a copy."""
    talk.compact()
    talk.say("And now?")
    talk.answer("Tea.")
    talk.put(*talk.rows[:4])
    talk.last = talk.rows[3]["uuid"]
    talk.hook()
    talk.compact()
    talk.say("With milk?")
    assert read().switches == {"new": 1, "compress": 2}
    assert said(A) == [*TALK, "And now?", "Tea.", "With milk?"]


@pytest.mark.parametrize("copied", [2, 3])
@pytest.mark.parametrize("compacts", [True, False])
@pytest.mark.parametrize("between", [True, False])
def test_an_edit_right_after_such_copies_is_a_rewind(talk, read, said, copied, compacts, between):
    """It continues a line that exists twice, the second time right before it; also with no turn in between."""
    if compacts:
        talk.compact()
    if between:
        read()
    talk.put(*talk.rows[:copied])
    talk.say("Leave it open.", after=talk.answered[0])
    read()
    assert said(A) == [*TALK[:2], "Leave it open."]


@pytest.mark.parametrize("marked", [True, False])
def test_a_fork_is_a_branch_at_the_point_of_the_fork(talk, projects, memory, read, said, marked):
    """Copies keep their uuids and are not recorded again; what the old session says later is not in the new."""
    read()
    talk.say("Thanks.")
    talk.fork(projects, B, upto=talk.answered[0], marked=marked, says="Is it broken?").answer("No.")
    report = read()
    assert (report.recorded, report.switches) == (3, {"branch": 1})
    assert said(B) == [*TALK[:2], "Is it broken?", "No."]
    assert said(A) == [*TALK, "Thanks."]
    assert memory.session(B).lineage() == [A, B]


@pytest.mark.parametrize("copied", [1, 2, 3])
@pytest.mark.parametrize("compacts", [True, False])
@pytest.mark.parametrize("between", [True, False])
def test_copies_that_a_fork_writes_again_record_nothing(talk, projects, read, said, copied, compacts, between):
    """Its next turns and edits continue its own line, not the old session's turns."""
    read()
    fork = talk.fork(projects, B, upto=talk.answered[0], says="Is it broken?")
    answered = fork.answer("No.")
    fork.say("Never mind.")
    if between:
        read()
    fork.put(*fork.rows[:copied])
    if compacts:
        fork.compact()
        fork.say("What now?")
    else:
        fork.say("Sure?", after=answered)
    report = read()
    told = ["Is it broken?", "No.", *(["Never mind.", "What now?"] if compacts else ["Sure?"])]
    assert said(B) == [*TALK[:2], *told]
    assert report.switches.get("rewind", 0) == (not compacts)


def test_a_compaction_that_a_fork_has_copied_is_not_repeated(talk, projects, read, said):
    """Repeated, with a question of the old session after it: the fork's next question continues its own line."""
    talk.compact()
    talk.say("And now?")
    asked = talk.last
    read()
    fork = talk.fork(projects, B, upto=asked, says="Is it broken?")
    own = fork.last
    read()
    fork.put(*fork.rows[:-1])
    fork.last = own
    fork.compact()
    fork.say("What now?")
    assert read().switches == {"compress": 1}
    assert said(B) == [*TALK, "And now?", "Is it broken?", "What now?"]


def test_a_compaction_into_a_new_file_ends_the_old_session(talk, projects, memory, read, read_anew, said):
    """Its first lines have the old session's id; the new session continues from its end."""
    read()
    new = Claude(projects, A, file=B)
    new.put(*talk.rows[-2:])
    new.last = talk.last
    new._numbers = iter(range(100, 200))
    new.line("system", after=None, subtype="compact_boundary", logicalParentUuid=talk.last, content="compacted")
    new.session = B
    new.line("user", message={"role": "user", "content": "A summary."}, isCompactSummary=True)
    new.say("And now?")
    assert read().switches == {"compress": 1}
    assert said(B) == [*TALK, "And now?"]
    assert summary(memory, A).ended_at is not None
    read_anew()
    talk.say("Still here.")
    read()
    assert said(A) == [*TALK, "Still here."]
    assert said(B) == [*TALK, "And now?"]


def test_a_compaction_into_a_new_file_may_use_the_new_id_throughout(talk, projects, memory, read, read_anew, said):
    """Only the boundary names the line that it continues."""
    read()
    new = Claude(projects, B)
    new.last = talk.last
    new.compact()
    new.say("And now?")
    assert read().switches == {"compress": 1}
    assert said(B) == [*TALK, "And now?"]
    assert memory.session(B).lineage() == [A, B]
    with pytest.raises(AssertionError):  # Wrong so far: read anew, the switch is recorded once more.
        read_anew()


def test_a_subagent_is_a_session_below_its_parent(talk, projects, memory, read, said):
    """It sees nothing of the parent, and the agent stays in its session."""
    side = Claude(projects, A, file=f"{A}/subagents/agent-7f")
    side._numbers = iter(range(500, 600))
    side.say("Look up the lid sensor.", isSidechain=True, agentId="7f")
    side.answer("It is a reed switch.", isSidechain=True, agentId="7f")
    report = read()
    assert (report.sessions, report.switches) == (2, {"new": 1})
    assert said(f"{A}/7f") == ["Look up the lid sensor.", "It is a reed switch."]
    assert summary(memory, f"{A}/7f").parent == A
    assert memory.session(f"{A}/7f").lineage() == [f"{A}/7f"]
    assert said(A) == TALK
    Claude(projects, B, file=f"{B}/subagents/agent-8a").say("Whose am I?", isSidechain=True, agentId="8a")
    read()
    assert (summary(memory, f"{B}/8a").parent, said(B)) == (B, []), "an unknown parent is started too"


def test_an_older_sidechain_lies_between_the_lines_of_its_parent(talk, memory, read, said):
    """The lines of the parent stay in the parent's session."""
    last = talk.last
    talk.say("Look it up.", after=None, isSidechain=True)
    talk.answer("Found.", isSidechain=True)
    talk.say("Thanks.", after=last)
    read()
    assert said(A) == [*TALK, "Thanks."]
    assert said(f"{A}/sidechain") == ["Look it up.", "Found."]


def test_an_imported_transcript_is_continued_and_resumed(talk, memory, read, said):
    """The same reader, the same keys. Where it was ended in the store, the agent does not know that."""
    import_files(memory, [talk.path])
    talk.say("Thanks.")
    report = read()
    assert (report.recorded, report.already_there) == (1, 4)
    memory.session(A).end()
    talk.say("One more thing.")
    assert read().recorded == 1
    assert said(A) == [*TALK, "Thanks.", "One more thing."]


@pytest.mark.parametrize("marked", [True, False])
def test_forgotten_turns_are_not_recorded_again(talk, projects, memory, read_anew, read, said, marked):
    """Their keys are still known, also to forks that are written later."""
    read()
    memory.forget(session=A)
    report = read_anew()
    assert (report.recorded, report.already_there) == (0, 4)
    talk.fork(projects, B, upto=talk.last, marked=marked, says="Is it broken?")
    assert read().recorded == 1
    assert (said(A), said(B)) == ([], ["Is it broken?"])


QUEUED = {
    "as a text": ({"prompt": "Use tape.", "commandMode": "prompt"}, "Use tape."),
    "with an image": ({"prompt": [{"type": "text", "text": "Use this."}, {"type": "image"}]}, "Use this.\n[image]"),
    "a shell command": ({"prompt": "<bash-input>ls</bash-input>", "commandMode": "bash"}, "ls"),
    "from a channel": ({"prompt": "Use glue.", "origin": {"kind": "channel"}}, "Use glue."),
    "nothing": ({"prompt": None}, None),
    "a notice": ({"prompt": "Task 7 is done.", "commandMode": "task-notification"}, None),
    "another agent": ({"prompt": "Are you done?", "origin": {"kind": "peer"}}, None),
    "a hint": ({"prompt": "Be brief.", "isMeta": True}, None),
}


@pytest.mark.parametrize("case", QUEUED)
def test_what_is_typed_while_the_agent_works_is_a_turn(talk, memory, read, said, case):
    """Several such prompts may continue one line: none takes another back. Notices in the same place are not said."""
    queued, text = QUEUED[case]
    before = talk.last
    talk.line("attachment", attachment={"type": "queued_command"} | queued)
    talk.line("attachment", attachment={"type": "queued_command", "prompt": "And hurry."}, after=before)
    talk.answer("Taped.")
    read()
    expected = [*TALK, *([text] if text else []), "And hurry.", "Taped."]
    assert said(A) == expected
    assert [turn.role.value for turn in memory.session(A).turns()][-2:] == ["user", "assistant"]
    assert [turn.text for turn in read_turns(talk.path)] == expected


TYPED = {
    "<command-name>/clear</command-name>\n<command-args></command-args>": None,
    "<command-message>fix</command-message>\n<command-args>the lid</command-args>": "the lid",
    "<local-command-stdout>Set model</local-command-stdout>": None,
    "<local-command-caveat>Do not answer.</local-command-caveat>": None,
    "<bash-input>make</bash-input>": "make",
    "<bash-stdout>ok</bash-stdout><bash-stderr></bash-stderr>": None,
    "<system-reminder>Be brief.</system-reminder>\nGlue it.": "Glue it.",
    "Glue it.\n\n<system-reminder>Be brief.</system-reminder>": "Glue it.",
    '<channel source="chat">Glue it.</channel>': "Glue it.",
    "[Request interrupted by user for tool use]": None,
    "This session is being continued from a previous conversation that ran out of context.": None,
    "What does <system-reminder>x</system-reminder> mean?": "What does <system-reminder>x</system-reminder> mean?",
    "<system-reminder> is never closed": "<system-reminder> is never closed",
    "  <b>Glue</b> it. ": "  <b>Glue</b> it. ",
}


@pytest.mark.parametrize("as_part", [False, True])
@pytest.mark.parametrize(("text", "typed"), TYPED.items())
def test_what_the_program_writes_as_the_user_is_not_said(talk, read, said, text, typed, as_part):
    """The words after a command are the user's, and so is a text that only mentions a tag."""
    talk.line("user", message={"role": "user", "content": [{"type": "text", "text": text}] if as_part else text})
    talk.line("assistant", message={"role": "assistant", "model": "<synthetic>", "content": "No response requested."})
    talk.line("assistant", message=None)
    talk.say("Thanks.")
    assert read().left_out == {"not said": 1 if typed else 2, "empty": 1}
    assert said(A) == [*TALK, *([typed] if typed else []), "Thanks."]


def test_the_answer_of_a_memory_is_not_recorded_again(talk, read, said):
    """It quotes turns that are in a store already; results of other tools are turns."""
    for tool in ("mcp__memory__recall", "mcp__files__recall"):
        talk.call(tool, tool)
        talk.result(f"from {tool}", tool)
    read()
    calls = ["[tool call: mcp__memory__recall]", "[tool call: mcp__files__recall]", "from mcp__files__recall"]
    assert said(A) == [*TALK, *calls]
