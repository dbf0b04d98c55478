"""Anthropic's memory tool over a store, beside the SDK's own over a folder."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
from anthropic.lib.tools import ToolError
from anthropic.lib.tools._beta_builtin_memory_tool import BetaLocalFilesystemMemoryTool

from mnemolog import MemoryStore
from mnemolog.adapters.anthropic_memory import AsyncMemoryTool, MemoryTool
from tests.pages import blocks, run_block

NOTES = {"path": "/memories/notes.md"}
COMMANDS = [
    {"command": "create", **NOTES, "file_text": "one\ntwo\n\ntwo again"},
    {"command": "create", **NOTES, "file_text": "other"},
    {"command": "view", **NOTES},
    {"command": "view", **NOTES, "view_range": [2, 3]},
    {"command": "view", **NOTES, "view_range": [2, -1]},
    {"command": "str_replace", **NOTES, "old_str": "two", "new_str": "2"},
    {"command": "str_replace", **NOTES, "old_str": "three", "new_str": "3"},
    {"command": "str_replace", **NOTES, "old_str": "two again", "new_str": "second\nthird"},
    {"command": "insert", **NOTES, "insert_line": 1, "insert_text": "between\n"},
    {"command": "insert", **NOTES, "insert_line": 99, "insert_text": "beyond"},
    {"command": "view", **NOTES},
    {"command": "create", "path": "/memories/people/anna/likes.txt", "file_text": "tea\n"},
    {"command": "insert", "path": "/memories/people", "insert_line": 0, "insert_text": "x"},
    {"command": "view", "path": "/memories/nowhere"},
    {"command": "str_replace", "path": "/memories/nowhere", "old_str": "a", "new_str": "b"},
    {"command": "rename", "old_path": "/memories/people/anna", "new_path": "/memories/notes.md"},
    {"command": "rename", "old_path": "/memories/people/anna", "new_path": "/memories/friends/anna"},
    {"command": "view", "path": "/memories/friends/anna/likes.txt"},
    {"command": "rename", "old_path": "/memories/people/anna", "new_path": "/memories/elsewhere"},
    {"command": "rename", "old_path": "/memories", "new_path": "/memories/elsewhere"},
    {"command": "delete", "path": "/memories/friends"},
    {"command": "delete", "path": "/memories/friends/anna/likes.txt"},
    {"command": "delete", "path": "/memories"},
    {"command": "view", "path": "/etc/passwd"},
    {"command": "view", "path": "/memories/../etc/passwd"},
    {"command": "create", **NOTES, "file_text": "again"},
    {"command": "delete", **NOTES},
    {"command": "create", **NOTES, "file_text": "again"},
    {"command": "view", **NOTES},
]


def told(tool, command):
    try:
        return tool.call(command)
    except ToolError as error:
        return f"error: {error}"


@pytest.fixture
def store(folder):
    with MemoryStore.open(folder, model=None, background=False) as store:
        yield store


@pytest.fixture
def tool(store):
    return MemoryTool(store, scope="acme/alice")


def test_every_command_answers_as_the_tool_of_the_sdk_does(tool, tmp_path):
    """The same texts and the same errors, in the same order of commands."""
    theirs = BetaLocalFilesystemMemoryTool(str(tmp_path / "files"))
    assert [told(tool, command) for command in COMMANDS] == [told(theirs, command) for command in COMMANDS]


def test_a_folder_lists_its_files_to_two_levels_with_sizes(tool):
    """A folder is there as long as a file is below it."""
    for path, size in (("a.md", 5), ("b/c.md", 1_536), ("b/d/e.md", 1_000), ("b/d/f/g.md", 24)):
        tool.call({"command": "create", "path": f"/memories/{path}", "file_text": "x" * size})
    assert tool.call({"command": "view", "path": "/memories"}).splitlines()[1:] == [
        "2.5K\t/memories",
        "5B\t/memories/a.md",
        "2.5K\t/memories/b/",
        "1.5K\t/memories/b/c.md",
        "1K\t/memories/b/d/",
    ]
    tool.call({"command": "delete", "path": "/memories/b"})
    assert told(tool, {"command": "view", "path": "/memories/b"}).startswith("error: The path /memories/b does not")


def test_a_file_has_a_history_and_is_in_no_context_and_no_other_list_of_facts(tool, store):
    """As of an earlier moment it is as it was; taken back, an edit is undone; of another scope nothing is seen."""
    tool.call({"command": "create", **NOTES, "file_text": "tea"})
    before = store.head().position
    tool.call({"command": "str_replace", **NOTES, "old_str": "tea", "new_str": "coffee"})
    scope = {"scope": "acme/alice"}
    assert store.fact("memories/notes.md", as_of=before, **scope).value == "tea"
    assert store.facts() == []
    assert [fact.value for fact in store.facts("memories/*")] == ["coffee"]
    assert "coffee" not in store.context("coffee", scope="acme").text
    assert store.assert_fact("notes.md", 1, **scope).nearest == ()
    store.retract_fact(store.fact("memories/notes.md", **scope), reason="undo")
    for expected, new in (("tea", "milk"), ("milk", "water")):
        assert expected in tool.call({"command": "view", **NOTES})
        tool.call({"command": "str_replace", **NOTES, "old_str": expected, "new_str": new})
    assert "does not exist" in told(MemoryTool(store, scope="acme/bob"), {"command": "view", **NOTES})


def test_what_is_there_is_not_replaced_and_what_others_asserted_is_read(tool, store):
    """Neither the folder itself nor a file can be created again, and below a file there is no folder."""
    tool.call({"command": "create", **NOTES, "file_text": "tea"})
    for path in ("/memories", "/memories/", "/memories/notes.md/below.md"):
        assert "already exists" in told(tool, {"command": "create", "path": path, "file_text": "x"})
        assert "already exists" in told(tool, {"command": "rename", "old_path": NOTES["path"], "new_path": path})
    store.assert_fact("memories/count.json", {"cups": 2}, scope="acme/alice")
    assert '{"cups":2}' in tool.call({"command": "view", "path": "/memories/count.json"})
    assert "count.json" in tool.call({"command": "view", "path": "/memories"})
    assert [fact.key for fact in store.facts("memories*")] == []


def test_a_file_that_was_forgotten_can_be_created_again(tool, store):
    """It begins anew, and nothing of the earlier one is read."""
    tool.call({"command": "create", **NOTES, "file_text": "secret"})
    store.forget(positions=[fact.position for fact in store.facts("memories/*")], reason="asked")
    assert "does not exist" in told(tool, {"command": "view", **NOTES})
    tool.call({"command": "create", **NOTES, "file_text": "new"})
    assert "new" in tool.call({"command": "view", **NOTES})


def test_what_is_replaced_or_too_long_is_said(tool, store):
    """A model has to know what its file holds now."""
    store.admin.set_redaction(True)
    secret = "ghp_" + "aB3" * 12
    answer = tool.call({"command": "create", **NOTES, "file_text": f"key: {secret}"})
    assert "Secrets were replaced" in answer
    assert secret not in answer
    long = {"command": "create", "path": "/memories/long.md", "file_text": "x" * 300_000}
    assert "the limit is" in told(tool, long)
    assert [fact.key for fact in store.facts("memories/*")] == ["memories/notes.md"]


def test_of_100_edits_at_once_none_is_lost(bare):
    """Whoever collides with another gets an error, looks again, and edits again."""
    tool = MemoryTool(bare)
    tool.call({"command": "create", **NOTES, "file_text": "begin\n"})

    def edit(number):
        command = {"command": "insert", **NOTES, "insert_line": 1, "insert_text": f"line {number}"}
        refused = 0
        while "changed by another call" in told(tool, command):
            refused += 1
        return refused

    with ThreadPoolExecutor(16) as pool:
        refused = sum(pool.map(edit, range(100)))
    lines = bare.fact("memories/notes.md").value.splitlines()
    assert sorted(lines[1:]) == sorted(f"line {number}" for number in range(100))
    assert len(bare.fact_history("memories/notes.md")) == 101
    assert refused > 0


def test_asyncio_has_the_same_tool(folder):
    """Over the same files."""

    async def both():
        with MemoryStore.open(folder, model=None, background=False) as store:
            tool = AsyncMemoryTool(store)
            await tool.call({"command": "create", **NOTES, "file_text": "tea"})
            return await tool.call({"command": "view", **NOTES}), MemoryTool(store).call({"command": "view", **NOTES})

    first, second = asyncio.run(both())
    assert first == second
    assert "tea" in first


def test_what_the_page_shows_runs(tmp_path, monkeypatch, capsys):
    """An edit, the file as of before, and the edit taken back."""
    page = "docs/adapters/anthropic-memory.md"
    monkeypatch.chdir(tmp_path)
    (line,) = blocks(page)
    run_block(page, line)
    shown = capsys.readouterr().out.splitlines()
    assert [line.split("\t")[-1] for line in shown] == [
        "Here's the content of /memories/likes.md with line numbers:", "black tea", "",
        "as of before: green tea", "",
        "Here's the content of /memories/likes.md with line numbers:", "green tea", "",
    ]  # fmt: skip
