"""Tools, Hermes' own memory, its configuration, its loader of plugins, its backup.

Several agents on one store, and a process that is killed.
"""

import itertools
import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from agent.memory_manager import MemoryManager
from hermes_cli import backup
from plugins.memory import discover_memory_providers, load_memory_provider

from mnemolog import InvalidInput, restore_backup
from mnemolog.adapters.hermes import MnemologProvider
from mnemolog.adapters.hermes.config import FILES, Config, install
from tests.adapters.hermes.children import first_call, said_in
from tests.adapters.hermes.managed import Hermes, read, said, save
from tests.support import in_thread, shared_stores

ROOT = Path(__file__).parents[3]


@pytest.fixture
def hermes(home):
    """An agent without a model."""
    save({"model": "none"}, home)
    agent = Hermes(home)
    agent.begin("one")
    yield agent
    agent.leave()


def call(hermes, tool, **arguments):
    return json.loads(hermes.manager.handle_tool_call(tool, arguments))


def test_the_manager_offers_the_tools_and_passes_calls_on(hermes):
    """Answers say where they are from; what goes wrong says what to do."""
    assert {schema["name"] for schema in hermes.manager.get_all_tool_schemas()} == {
        "mnemolog_recall",
        "mnemolog_remember",
    }
    hermes.say("Where is the boat?", "In the harbour.")
    (first, *_) = call(hermes, "mnemolog_recall", query="boat")["found"]
    assert (first["text"], first["session"], first["role"]) == ("Where is the boat?", "one", "user")
    assert call(hermes, "mnemolog_remember", text="The boat is red.") == {"kept": "The boat is red."}
    assert "The boat is red." in str(call(hermes, "mnemolog_recall", query="red"))
    assert call(hermes, "mnemolog_recall", query=" ") == {
        "error": "query: empty",
        "hint": "correct the value and call again",
    }
    assert set(call(hermes, "mnemolog_remember")) == {"error", "hint"}
    assert set(call(hermes, "mnemolog_remember", text=" ")) == {"error", "hint"}
    assert "mnemolog_recall" in hermes.manager.build_system_prompt()


def test_hermes_own_memory_is_mirrored_with_what_became_of_it(hermes):
    """As the manager passes it on: only what was written, each operation of a batch."""
    written = json.dumps({"success": True})
    for arguments in (
        {"action": "add", "target": "user", "content": "Likes tea."},
        {
            "target": "memory",
            "operations": [
                {"action": "replace", "content": "Likes coffee.", "old_text": "Likes tea."},
                {"action": "remove", "old_text": "Likes coffee."},
            ],
        },
    ):
        hermes.manager.notify_memory_tool_write(written, arguments, build_metadata=lambda: {"session_id": "one"})
    refused = json.dumps({"success": True, "staged": True})
    hermes.manager.notify_memory_tool_write(refused, {"action": "add", "content": "not yet"})
    with hermes.store() as store:
        turns = store.turns("one")
        assert [turn.text for turn in turns] == ["Likes tea.", "Likes coffee.", "No longer holds: Likes coffee."]
        assert [turn.role.value for turn in turns] == ["system"] * 3
        assert turns[1].metadata == {"memory": "memory", "action": "replace", "old_text": "Likes tea."}


def test_users_recall_their_own_unless_the_profile_is_shared(home, hermes):
    """Scopes are made of profile and user, whatever these are called."""
    hermes.say("Where is the boat?", "In the harbour.")
    for chosen, found in (("user", False), ("profile", True)):
        save({"recall": chosen}, home)
        other = Hermes(home, platform="telegram", user_id="4/2")
        other.begin(f"other {chosen}")
        assert ("In the harbour." in other.ask("boat in the harbour")) is found
        with other.store() as store:
            assert store.session(f"other {chosen}").scope == "hermes/default/telegram:4%2F2"
        other.leave()


def test_what_is_configured_is_kept_and_what_cannot_be_is_refused(home):
    """As Hermes' setup and its panels save it: numbers as text."""
    provider = MnemologProvider()
    keys = {field["key"] for field in provider.get_config_schema()}
    assert keys == set(Config.__struct_fields__)
    provider.save_config({"hits": "7", "folder": "$HERMES_HOME/elsewhere"}, str(home))
    assert (read(home).hits, read(home).store(home)) == (7, home / "elsewhere")
    for wrong in ({"hits": "many"}, {"hits": 0}, {"recall": "everybody"}):
        with pytest.raises(InvalidInput):
            provider.save_config(wrong, str(home))
    assert read(home).hits == 7
    assert read(home).model == {field["key"]: field["default"] for field in provider.get_config_schema()}["model"]


def test_hermes_loads_what_was_installed(home):
    """Found, loaded and driven by Hermes' own code, from two files in its home."""
    save({"model": "none"}, home)
    assert install(home).files == dict.fromkeys(FILES, "written")
    assert ("mnemolog", True) in [(name, available) for name, _, available in discover_memory_providers()]
    manager = MemoryManager()
    manager.add_provider(load_memory_provider("mnemolog"))
    manager.initialize_all(session_id="one", platform="cli")
    manager.sync_all("Where is the boat?", "In the harbour.", session_id="one", messages=[])
    assert manager.flush_pending(60)
    manager.shutdown_all()
    with Hermes(home).store() as store:
        assert said(store, "one") == ["Where is the boat?", "In the harbour."]


def test_a_real_agent_records_and_recalls(home):
    """Hermes as it is, from its configuration to its end; only the model is made of an echo."""
    save({"model": "none"}, home)
    install(home)
    (home / "config.yaml").write_text("memory:\n  provider: mnemolog\n")
    ran = subprocess.run(
        [sys.executable, "-m", "tests.adapters.hermes.real_agent"], capture_output=True, text=True, check=False
    )
    first, second, third = json.loads(ran.stdout.splitlines()[-1])
    assert (first, second) == ("My dog Nero hates the stairs.", "Good night.")
    assert third.startswith("Which stairs does Nero hate?\n\n<memory-context>")
    assert "user: My dog Nero hates the stairs.\n" in third
    with Hermes(home).store() as store:
        assert said(store, "monday") == [first, f"You said: {first}", second, f"You said: {second}"]
        assert said(store, "tuesday")[0] == "Which stairs does Nero hate?"


def command(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "mnemolog", "hermes", "install", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_command_installs_once_and_replaces_only_what_is_its_own(home):
    """A dry run and a second run write nothing; `--force` replaces only changed files of mnemolog."""
    plugin = home / "plugins" / "mnemolog"
    dry = json.loads(command("--dry-run", "--json").stdout)
    assert dry == {"folder": str(plugin), "files": dict.fromkeys(FILES, "written"), "dry_run": True}
    assert not plugin.exists()
    assert "written" in command().stdout
    before = {path: path.stat().st_mtime_ns for path in plugin.iterdir()}
    assert set(json.loads(command("--json").stdout)["files"].values()) == {"unchanged"}
    assert {path: path.stat().st_mtime_ns for path in plugin.iterdir()} == before
    module = plugin / "__init__.py"
    module.write_text(f"{FILES['__init__.py']}\n# changed\n")
    refused = command()
    assert refused.returncode == 2
    assert "replace it with --force" in refused.stderr
    assert json.loads(command("--force", "--json").stdout)["files"] == {
        "plugin.yaml": "unchanged",
        "__init__.py": "replaced",
    }
    assert module.read_text() == FILES["__init__.py"]
    module.write_text("# somebody else's plugin\n")
    assert "was not written by mnemolog, so it is kept" in command("--force").stderr
    assert module.read_text() == "# somebody else's plugin\n"
    assert "there is no Hermes home" in command("--home", home / "nowhere").stderr


def test_a_store_outside_of_its_home_is_backed_up_by_hermes_as_a_copy_that_restores(home, hermes, tmp_path):
    """Made while the agent continues. Hermes finds a store inside its home without help."""
    install(home)
    (home / "config.yaml").write_text("memory:\n  provider: mnemolog\n")
    hermes.say("Where is the boat?", "In the harbour.")
    assert backup._collect_memory_provider_external_paths() == []
    outside = tmp_path / "outside" / "store"
    save({"folder": str(outside)}, home)
    other = Hermes(home)
    other.begin("two")
    for number in range(2):
        other.say(f"Who barks? {number}", "Nero.")
        copies = backup._collect_memory_provider_external_paths()
    copy, keys = copies
    other.leave()
    restored = restore_backup(copy, tmp_path / "restored", keys=keys)
    with other.store() as store:
        assert restored.digest == store.head().digest


def test_the_page_names_every_hook_and_its_example_runs(capsys):
    """Each hook of Hermes' that the provider has is in the table."""
    page = (ROOT / "docs" / "adapters" / "hermes.md").read_text()
    own = {name for name, value in vars(MnemologProvider).items() if callable(value) and not name.startswith("_")}
    told = set(re.findall(r"`(\w+)`", "".join(line for line in page.splitlines() if line.startswith("| `"))))
    assert own - told == set()
    for target in re.findall(r"\]\(([^)#:]+)\)", page):
        assert (ROOT / "docs" / "adapters" / target).exists(), target
    runpy.run_path(str(ROOT / "examples" / "hermes_agent.py"), run_name="__main__")
    assert capsys.readouterr().out.splitlines()[-1] == "sound: True"


TURNS, KILLS = 8, 3


def child(home, session):
    command = [sys.executable, "-m", "tests.adapters.hermes.children", str(home), session]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_a_process_killed_after_sync_turn_has_lost_nothing(home, rng):
    """`kill -9`, while the model is stuck: what returned is in the log, both sides of a turn or none."""
    returned = -1
    for _ in range(KILLS):
        with child(home, "one") as started:
            for line in itertools.islice(started.stdout, rng.randrange(1, 40)):
                returned = int(line)
            started.kill()
            returned = max([returned, *map(int, started.stdout)])
        with Hermes(home).store() as store:
            texts = said(store, "one")
            count = len(texts) // 2
            assert texts == [text for n in range(count) for text in (f"user {n}", f"assistant {n}")]
            assert returned + 1 <= count <= returned + 2
            assert store.verify().findings == ()
            returned = count - 1


def test_two_agents_of_one_process_share_one_store_and_one_model(home, encoder):
    """A gateway has many. What one says the other recalls, and the first who leaves closes nothing."""
    encoder.free.set()
    first, second = Hermes(home, model=encoder), Hermes(home, model=encoder)
    first.begin("one")
    second.begin("two")
    assert shared_stores() == 1
    saying = [
        in_thread(lambda agent=agent, name=name: [agent.say(f"{name} {n}", f"yes {n}") for n in range(TURNS)])
        for agent, name in ((first, "Nero"), (second, "Bello"))
    ]
    for thread in saying:
        thread.result()
    first.leave()
    assert "Nero 1" in second.ask("Nero 1")
    with second.store() as store:
        for session, name in (("one", "Nero"), ("two", "Bello")):
            assert said(store, session) == [text for n in range(TURNS) for text in (f"{name} {n}", f"yes {n}")]
    second.leave()
    assert not shared_stores()


def test_first_calls_that_meet_are_all_recorded(race):
    """Those of two users, too: the session is started once, whoever comes first."""
    race(first_call, kept=said_in)
