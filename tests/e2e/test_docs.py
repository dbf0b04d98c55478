"""Every example of the documentation runs, its links lead somewhere, and its tables are those of the code.

`make demo`: what it tells is what happened.
"""

import inspect
import os
import re
import shlex
import shutil
import tomllib
from hashlib import blake2b
from pathlib import Path
from typing import get_type_hints

import msgspec
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pysqlite3 import dbapi2

import mnemolog
from mnemolog import MemoryStore, SessionAt, cli, demo
from mnemolog.cli.app import loaded
from mnemolog.domain import export
from mnemolog.domain.events import EVENT_TYPES, Event
from mnemolog.infra.keys.sqlite_keys import KEYS_FILE
from mnemolog.infra.log.sqlite.engine import LOG_FILE
from mnemolog.operation_table import OWNERS
from mnemolog.projections.maintenance import tables
from mnemolog.projections.quarantine import BYTES_MAX, ITEMS_MAX, MEANS
from mnemolog.projections.vectors import folders
from tests.pages import (
    ROOT,
    assert_example_prints,
    blocks,
    broken_links,
    commands,
    files,
    links,
    pages,
    run_block,
    run_command,
    run_docstring,
    shown_output,
)
from tests.support import as_typed

ELSEWHERE = ("docs/adapters/", "docs/postgres.md")
"""Pages whose blocks run where there is what they need: a framework, a server (test_postgres.py)."""
BLOCKS = [(page, line) for page in pages() if not page.startswith(ELSEWHERE) for line in blocks(page)]


@pytest.fixture
def in_an_empty_folder(tmp_path, monkeypatch):
    """Whatever is run may change the environment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.environ", os.environ.copy())


@pytest.mark.local
@pytest.mark.parametrize(("page", "line"), BLOCKS, ids=lambda value: str(value))
@pytest.mark.usefixtures("in_an_empty_folder")
def test_a_code_block_can_be_copied_alone_and_gives_what_it_shows(page, line):
    """In an empty folder, without a model. Blocks of adapters run in the environments of their frameworks."""
    run_block(page, line)


@pytest.mark.local
@pytest.mark.parametrize("page", [page for page in pages() if page in dict(BLOCKS) and len(blocks(page)) > 1])
@pytest.mark.usefixtures("in_an_empty_folder")
def test_the_code_blocks_of_a_page_can_be_copied_one_after_the_other_into_one_folder(page):
    """None of them fails on what an earlier one left. Values may then differ from those shown."""
    for line in blocks(page):
        run_block(page, line, compare=False)


PUBLIC = [
    *(call for name in mnemolog.__all__ if inspect.isfunction(call := getattr(mnemolog, name))),
    *(
        call
        for owner in (*OWNERS, SessionAt)
        for name, call in inspect.getmembers(owner, inspect.isroutine)
        if not name.startswith("_")
    ),
]
"""The functions and methods that users call."""
EXAMPLES = [call for call in PUBLIC if "\n    store = MemoryStore.open(" in (inspect.getdoc(call) or "")]


@pytest.mark.local
@pytest.mark.parametrize("call", dict.fromkeys(PUBLIC), ids=lambda call: call.__qualname__)
def test_each_parameter_has_a_line_in_the_docstring(call):
    """The lines have the order of the signature, in which `help` shows them."""
    listed = re.findall(r"^- `(\w+)`: \S", inspect.getdoc(call), re.MULTILINE)
    assert listed == [name for name in inspect.signature(call).parameters if name != "self"]


@pytest.mark.local
@pytest.mark.parametrize("call", dict.fromkeys(EXAMPLES), ids=lambda call: call.__qualname__)
@pytest.mark.usefixtures("in_an_empty_folder")
def test_the_example_of_a_docstring_runs(call):
    """In an empty folder."""
    run_docstring(call)


@pytest.mark.local
@pytest.mark.usefixtures("in_an_empty_folder")
def test_the_page_of_recall_prints_the_explanation_that_it_shows(capsys):
    """Every line, to the column."""
    for line in blocks("docs/recall.md"):
        run_block("docs/recall.md", line, compare=False)
    shown = shown_output("docs/recall.md")
    assert shown.startswith("question    What about the ferry?")
    assert shown in capsys.readouterr().out


@pytest.mark.local
@pytest.mark.parametrize("page", pages())
def test_links_of_a_page_lead_to_files_and_headings(page):
    """Only those into the repository are looked at."""
    assert broken_links(page) == []


FOLDERS = ("adapters", "adr", "reports")
"""Folders of pages with an index."""


@pytest.mark.local
def test_every_page_is_in_the_table_of_contents():
    """docs/README.md lists them, as the site does. Adapters and pages for contributors have lists of their own."""
    contents = ["docs/README.md", "CONTRIBUTING.md", *(f"docs/{folder}/README.md" for folder in FOLDERS)]
    listed = {
        str(((ROOT / page).parent / path).resolve().relative_to(ROOT)) for page in contents for path, _ in links(page)
    }
    assert set(pages()) - listed <= {"README.md", "docs/README.md"}


CODE = ("api", "domain", "infra", "projections", "cli", "server", "adapters")
NOT_RUN = (
    "pip install",
    "python3 -m venv",
    ". .venv/",
    "git clone",
    "cd ",
    "make ",
    "mnemolog model add",
    "mnemolog serve",
)
"""Commands that change the environment, need the network, run this suite, or do not end."""


@pytest.mark.local
@pytest.mark.parametrize(
    "page", ["README.md", "docs/start.md", "docs/users.md", "docs/moving-in.md", "docs/production.md"]
)
def test_the_commands_of_a_page_run_as_they_are_written_one_after_the_other(page, tmp_path):
    """In a shell, with the files that the page asks to save. Where output is shown, it is the output."""
    for name, source in files(page).items():
        (tmp_path / name).write_text(source)
    ran = [(command, shown) for command, shown in commands(page) if not command.startswith(NOT_RUN)]
    assert len(ran) > 3
    for command, shown in ran:
        assert shown in ("", run_command(command, tmp_path)), command


SAMPLES = {
    "chats.csv": "table.csv",
    "chatgpt/conversations.json": "chatgpt.json",
    "claude/conversations.json": "claude_ai.json",
    "kettle.jsonl": "claude_code.jsonl",
    "rollout.jsonl": "codex.jsonl",
    **{name: name for name in ("mem0.json", "zep.json", "sharegpt.json", "turns.jsonl")},
    **{name: name for name in ("openai.json", "openai.jsonl", "chroma.json", "langgraph.json", "letta.json")},
}
"""The files of the recipes for imports, and the samples they stand for."""


@pytest.mark.local
@pytest.mark.usefixtures("in_an_empty_folder")
def test_the_recipes_for_imports_run_as_they_are_written(tmp_path, run, monkeypatch):
    """Each in a store of its own, with a sample of what people have."""
    for name, sample in SAMPLES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(ROOT / "tests" / "integration" / "data" / "importing" / sample, tmp_path / name)
    (tmp_path / "other.csv").write_text("day,clock,who,said,mood\n2026-03-16,09:00,Ada,hello,glad\n")
    (tmp_path / "other.jsonl").write_text('{"message": {"body": "hello"}, "room": "tea", "day": 1}\n')
    monkeypatch.setenv("COLUMNS", "120")
    recipes = commands("docs/import.md")
    assert {command.split()[3] for command, _ in recipes} == {*SAMPLES, "other.csv", "other.jsonl"} - {
        "openai.jsonl",
        "rollout.jsonl",
    }
    for command, shown in recipes:
        ran = run(*shlex.split(command)[1:], "--model", "none")
        assert (ran.returncode, shown in ("", ran.stdout)) == (0, True), (command, ran)
        if not shown:
            assert ", 0 already there" in ran.stdout, command
            shutil.rmtree(tmp_path / "memory")


@pytest.mark.local
def test_every_command_that_a_page_names_exists_with_its_options():
    """In console blocks and in the text. Decisions and the changelog speak of their time."""
    options = {"help": set(), "more": set()}
    for name in cli.every_command():
        group, _, subcommand = name.partition(" ")
        command = loaded(group)
        for at, one in ((group, command), (name, command.commands[subcommand] if subcommand else command)):
            options[at] = {option for parameter in one.params for option in parameter.opts + parameter.secondary_opts}
    wrong = []
    for page in pages():
        if page == "CHANGELOG.md" or "/adr/" in page:
            continue
        for typed in re.findall(r"(?:^\$ |`)mnemolog ([a-z][^`\n]*)", (ROOT / page).read_text(), re.MULTILINE):
            words = re.split(r" #| \||\$\(|;|&&", re.sub(r"[][]", " ", typed))[0].split()
            name = next((" ".join(words[:n]) for n in (2, 1) if " ".join(words[:n]) in options), None)
            given = {word.partition("=")[0].rstrip(".,") for word in words if re.match("--?[a-z]", word)}
            if name is None or given - options[name] - {"--help", "-h"}:
                wrong.append((page, typed))
    assert wrong == []


INSTALLED = [page for page in pages() if "pip install" in (ROOT / page).read_text() and "/adr/" not in page]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


@pytest.mark.local
@pytest.mark.parametrize("page", INSTALLED)
def test_every_install_command_of_a_page_works_in_a_checkout(page):
    """The package is on no index yet, so none names it. Each extra exists."""
    commands = re.findall(r"pip install [^`\n]*", (ROOT / page).read_text())
    assert [command for command in commands if re.search(r"(^| |')mnemolog\b", command)] == []
    named = {
        extra for command in commands for extras in re.findall(r"\[([\w,-]+)\]", command) for extra in extras.split(",")
    }
    assert named - EXTRAS.keys() == set()


@pytest.mark.local
@pytest.mark.parametrize("page", [page for page in INSTALLED if "docs/adapters/" in page])
def test_the_page_of_an_adapter_installs_what_its_example_needs(page):
    """Its own extra, the model if the example uses it, and LangGraph itself, which its extra does not require."""
    text = (ROOT / page).read_text()
    (command, *_) = re.findall(r"^\$ (pip install .*)", text, re.MULTILINE)
    assert Path(page).stem in command
    assert "minilm" in command or 'model="all-MiniLM-L6-v2"' not in text
    assert command.endswith(" langgraph") or "from langgraph.graph" not in text


@pytest.mark.local
def test_the_installation_page_lists_every_extra():
    """One row each."""
    page = (ROOT / "docs" / "installation.md").read_text()
    assert sorted(re.findall(r"^\| `([\w-]+)` \|", page, re.MULTILINE)) == sorted(EXTRAS)


@pytest.mark.local
@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "SECURITY.md", "docs/architecture.md"])
def test_every_path_on_the_maps_of_the_code_exists(page):
    """Paths in backticks that begin with a folder of the code."""
    named = re.findall(
        r"`((?:api|domain|infra|projections|cli|server|adapters|tests)/[\w/.-]*)`", (ROOT / page).read_text()
    )
    assert [path for path in named if "NAME" not in path and not (ROOT / path).exists()] == []


@pytest.mark.local
def test_every_page_that_the_code_names_exists():
    """Docstrings and messages refer to pages by their path; the site links them."""
    sources = [path for folder in CODE for path in (ROOT / folder).rglob("*.py")]
    named = {page for path in sources for page in re.findall(r"\bdocs/[\w/-]+\.md", path.read_text())}
    assert len(named) > 10
    assert {page for page in named if not (ROOT / page).exists()} == set()


@pytest.mark.local
def test_operations_shows_the_table_of_states_and_actions_as_the_code_has_it():
    """Every state, what it means and what is to be done, word for word; and the limits of the quarantine."""
    page = (ROOT / "docs" / "operations.md").read_text()
    for state, means in MEANS.items():
        assert f"| `{state.value}` | {means} |" in page
    for actions in (tables.VIEWS_ACTIONS, tables.ACTIONS, tables.CACHE_ACTIONS, folders.ACTIONS):
        for state, action in actions.items():
            shown = re.escape(as_typed(action, "DIR"))
            states = rf"(`[a-z-]+`, )*`{state.value}`(, `[a-z-]+`)*"
            assert re.search(rf"^\| {states} \| [a-z, ]+ \| {shown} \|$", page, re.MULTILINE), action
    assert f"{ITEMS_MAX} items (`ITEMS_MAX`) or {BYTES_MAX >> 30} GiB (`BYTES_MAX`)" in " ".join(page.split())


@pytest.mark.local
def test_the_examples_of_sessions_and_of_an_agent_run(capsys, monkeypatch):
    """Without a model and without a provider's key; the agent in eighty lines."""
    assert_example_prints(capsys, "sessions.py", "assistant is in")
    monkeypatch.setattr("sys.argv", ["agent.py"])
    assert_example_prints(
        capsys,
        "agent.py",
        "I remember: My dog Nero hates the stairs.",
        "the new session was handed: None",
        "after the restore: 900 []",
        "recalled: 'I moved to Lisbon in March.', position 3, session True",
        "there were 2 sessions",
        "sound: True",
    )
    assert len((ROOT / "examples" / "agent.py").read_text().splitlines()) <= 80


FORMAT, EVENTS_PAGE = ((ROOT / "docs" / name).read_text() for name in ("format.md", "format-events.md"))
COMMON = {field.name: field for field in msgspec.structs.fields(Event)}
"""The fields of every event stand once, above those of single topics."""
WORDS = {
    "str": "text",
    "int": "integer",
    "float": "float",
    "bool": "boolean",
    "bytes": "bytes",
    "None": "nil",
    "Any": "any",
    "list": "array",
    "dict": "map",
    "NoneType": "nil",
    "Role": "text",
}


def type_in_words(annotation):
    """A Python type as the page names it."""
    text = re.sub(r"<(?:class|enum) '([\w.]+)'>", r"\1", str(annotation)).replace("typing.", "")
    text = re.sub(r"(?:\w+\.)+(\w+)", r"\1", text)
    text = re.sub(r"Optional\[(\w+)\]", r"\1 | None", text)
    text = re.sub(r"Literal\['(\w+)', '(\w+)'\]", r'"\1" | "\2"', text)
    text = re.sub(r"\w+", lambda word: WORDS.get(word[0], word[0]), text)
    return text.replace(" | ", " or ").replace("[", " of ").replace("]", "").replace("map of text, ", "map of ")


def line_of(field, annotation):
    """A field as the page shows it: `name: type = default`, and `?` for one that is nil by default."""
    text = f"    {field.encode_name}: {type_in_words(annotation)}"
    if field.default is None:
        return f"{text.removesuffix(' or nil')}?"
    made = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
    return text if made is msgspec.NODEFAULT else f"{text} = {msgspec.json.encode(made).decode()}"


def lines_of(kind, fields):
    """The lines of the page for these fields of an event, made from the code."""
    hints = get_type_hints(kind)
    return [line_of(field, hints[field.name]) for field in fields]


@pytest.mark.local
def test_the_page_has_every_field_of_every_event():
    """Name as stored, type and default, in the order of the code: who adds an event or a field writes it down."""
    written = {}
    for block in re.findall(r"^```text\n(.*?)^```$", EVENTS_PAGE, re.MULTILINE | re.DOTALL):
        topic = ""
        for line in block.splitlines():
            topic = topic if line.startswith(" ") else line
            written.setdefault(topic, []).extend([line] if line.startswith(" ") else [])
    assert written.pop("") == lines_of(Event, COMMON.values())
    assert written == {
        topic: lines_of(kind, [field for field in msgspec.structs.fields(kind) if field.name not in COMMON])
        for topic, kind in EVENT_TYPES.items()
    }


@pytest.mark.local
def test_the_page_has_every_field_of_an_export():
    """Of each kind of line."""
    for line in (export.ExportHeader, export.ExportedEvent, export.ExportTrailer):
        tag = line.__struct_config__.tag
        for name in line.__struct_encode_fields__:
            assert re.search(rf"^\| `{tag}` \| `{name}` \|", FORMAT, re.MULTILINE), name


@pytest.mark.local
def test_the_page_has_the_layout_of_the_file(tmp_path):
    """Every table, index and trigger, word for word."""
    with MemoryStore.open(tmp_path, model=None):
        pass
    connection = dbapi2.connect(str(tmp_path / LOG_FILE))
    made = [row[0] for row in connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")]
    connection.close()
    page = " ".join(FORMAT.split())
    for statement in made:
        if "sqlite_sequence" not in statement:
            assert " ".join(statement.split()) in page


@pytest.mark.local
def test_a_sealed_state_opens_as_the_page_says(tmp_path):
    """By the columns of two files, BLAKE2b and AES-GCM alone: what somebody else would write from the page."""
    with MemoryStore.open(tmp_path, model=None) as store:
        store.start_session("s1", title="trip").record("user", "hi")
        log_id = store.status().log_id
    log, keys = (dbapi2.connect(str(tmp_path / name)) for name in (LOG_FILE, KEYS_FILE))
    stream, version, topic, state = log.execute(
        "SELECT stream, version, topic, state FROM events WHERE topic = 'turn.recorded.v1'"
    ).fetchone()
    ((series, depth, prefix, material),) = keys.execute("SELECT series, depth, prefix, material FROM nodes")
    assert (state[:3], depth, prefix) == (bytes((0xC1, 1, series)), 0, 0)
    for level in range(31, -1, -1):
        halves = blake2b(material, digest_size=64, person=b"mnemolog/node/1").digest()
        material = halves[32:] if version >> level & 1 else halves[:32]
    place = b"mnemolog/sealed/1\x00" + log_id.encode() + len(stream).to_bytes(4, "big") + stream.encode()
    opened = AESGCM(material).decrypt(state[3:15], state[15:], place + version.to_bytes(8, "big") + topic.encode())
    assert msgspec.msgpack.decode(opened) == {"role": "user", "text": "hi"}
    keys.close()
    log.close()


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
