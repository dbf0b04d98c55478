"""The table of operations is whole where people and agents meet it: commands, tools, pages of the console.

Each operation has a command, a tool and a page, or there is a reason why not; options are named like parameters.
Hints name calls that exist, in the words of each interface.
"""

import ast
import inspect
import pickle
import re
import shlex
from enum import StrEnum

import msgspec
import pytest

import mnemolog
from mnemolog import MemoryStore, Session, import_log, restore_backup
from mnemolog.adapters.importers.import_files import import_files
from mnemolog.adapters.support.agent_tools import TOOLS
from mnemolog.adapters.support.agent_tools.tool import CALLS as TOOLS_OF_HINTS
from mnemolog.adapters.support.agent_tools.tool import Refusal
from mnemolog.audit.service import AuditService
from mnemolog.cli.app import every_command, loaded
from mnemolog.cli.hints import COMMANDS, as_commands, begin
from mnemolog.cli.hints import COMMANDS as COMMANDS_OF_HINTS
from mnemolog.domain.errors import Hint, again, in_python, remedy, sentence, spelled, with_model
from mnemolog.infra.log import open as opening
from mnemolog.infra.log.open import prepare_database
from mnemolog.models.service import ModelService
from mnemolog.operation_table import OPERATIONS, OWNERS
from mnemolog.operations.copies import copy_store, wrap_keys
from mnemolog.projections.quarantine import Quarantine
from mnemolog.server.console.routes import ACTIONS, PAGES
from mnemolog.server.http.problems import as_requests
from mnemolog.server.http.routes import PREFIX, ROUTES
from tests.example_errors import EXAMPLES
from tests.unit.test_layers import SOURCES, nodes_of


class Why(StrEnum):
    """Why an operation has no command, no tool or no page."""

    AHEAD = "only a program that runs on can ask before it needs the answer"
    FEW = "a model has few tools, and chooses better for it"
    IN_LIST = "the list has it"
    LOOKS = "the console looks at what agents do"
    MISSING = "nothing speaks against it, and nobody has needed it"
    ON_THE_WAY = "whatever needs it does it on the way"
    OPERATOR = "whoever runs the store does it, from a command line"
    PERSON = "a person decides that, not a model"


REACHED = {
    # operation: commands, tools, pages (with POST: what their forms do)
    "sessions": ("sessions", "session_list", "/sessions"),
    "start_session": (Why.ON_THE_WAY, Why.ON_THE_WAY, Why.LOOKS),
    "find_session": (Why.ON_THE_WAY, Why.ON_THE_WAY, Why.ON_THE_WAY),
    "session": ("record", "remember", Why.LOOKS),
    "end_session": (Why.MISSING, "session_end", Why.LOOKS),
    "record": ("record", "remember", Why.LOOKS),
    "record_many": ("import", "remember", Why.LOOKS),
    "turns": (Why.IN_LIST, Why.FEW, "/session"),
    "assert_fact": ("assert", "remember", "POST /facts/correct"),
    "retract_fact": ("retract", Why.PERSON, "POST /facts/correct"),
    "retract_facts": ("retract", Why.PERSON, Why.LOOKS),
    "facts": ("facts", "facts", "/facts"),
    "fact": (Why.IN_LIST, Why.IN_LIST, Why.IN_LIST),
    "fact_history": ("facts", Why.FEW, "/facts"),
    "scopes": ("scopes", Why.FEW, "/"),
    "agents": ("agents", Why.FEW, "/"),
    "current": ("current", "session_current", Why.MISSING),
    "switch": ("switch", "switch", Why.LOOKS),
    "preview_switch": ("switch", Why.FEW, Why.LOOKS),
    "recall": ("recall", "recall", "/recall"),
    "context": ("context", "context", "/context"),
    "standing": ("standing", Why.FEW, Why.MISSING),
    "end_standing": ("standing", Why.PERSON, "POST /context/end"),
    "find": ("find", Why.FEW, "/sessions"),
    "head": ("head", Why.ON_THE_WAY, "/audit"),
    "position_at": (Why.ON_THE_WAY, Why.ON_THE_WAY, Why.ON_THE_WAY),
    "events": ("export", Why.FEW, "/audit"),
    "replay": ("replay", Why.FEW, Why.ON_THE_WAY),
    "status": ("status", "status", "/, /health"),
    "verify": ("verify", Why.OPERATOR, "POST /audit/verify"),
    "forget": ("forget", Why.PERSON, "/forgetting, POST /forgetting"),
    "distrust": ("distrust", Why.PERSON, "POST /distrust"),
    "trust_again": ("distrust", Why.PERSON, "POST /distrust/end"),
    "distrusts": ("distrusted", Why.FEW, "/session"),
    "propose": ("propose", "propose_fact", Why.LOOKS),
    "proposals": ("proposals", Why.PERSON, "/proposals"),
    "approve": ("approve", Why.PERSON, "POST /proposals/approve"),
    "decline": ("decline", Why.PERSON, "POST /proposals/decline"),
    "backup": ("backup", Why.OPERATOR, Why.OPERATOR),
    "rebuild": ("rebuild", Why.OPERATOR, Why.OPERATOR),
    "session.at": (
        "show, memory get, memory list, task, notes, checkpoint list",
        "working_memory",
        "/session",
    ),
    "session.turns": ("show", Why.FEW, "/session"),
    "session.assert_fact": (Why.MISSING, "remember", Why.LOOKS),
    "session.recall": ("recall", "recall", "/recall"),
    "session.context": ("context", "context", "/context"),
    "session.prefetch": (Why.AHEAD, Why.AHEAD, Why.AHEAD),
    "session.prefetch_result": (Why.AHEAD, Why.AHEAD, Why.AHEAD),
    "session.rewind": ("rewind", "switch", Why.LOOKS),
    "session.branch": ("branch", "session_branch", Why.LOOKS),
    "session.lineage": ("show", "session_current", "/session, /lineage"),
    "session.keys": ("memory list", Why.IN_LIST, Why.IN_LIST),
    "session.all": ("memory list", "working_memory", "/session"),
    "session.clear": (Why.MISSING, Why.FEW, Why.LOOKS),
    "session.get": ("memory get", Why.IN_LIST, Why.IN_LIST),
    "session.set": ("memory set", "memory_set, working_memory", Why.LOOKS),
    "session.delete": ("memory delete", "working_memory", Why.LOOKS),
    "session.task": ("task", "working_memory", "/session"),
    "session.set_task": ("task", "working_memory", Why.LOOKS),
    "session.update_task": ("task", "task_update", Why.LOOKS),
    "session.notes": ("notes", "working_memory", "/session"),
    "session.note": ("notes", "working_memory", Why.LOOKS),
    "session.clear_notes": ("notes", "notes_clear", Why.LOOKS),
    "session.checkpoints": ("checkpoint list", "checkpoint_list", "/session, /lineage"),
    "session.checkpoint": ("checkpoint create", "checkpoint_create", Why.LOOKS),
    "session.delete_checkpoint": ("checkpoint delete", Why.PERSON, Why.LOOKS),
    "session.restore": ("checkpoint restore", "checkpoint_restore", Why.LOOKS),
    "audit.timeline": ("replay", "timeline", "/audit, /live"),
    "audit.event": ("show", Why.FEW, "/event/{position}"),
    "audit.diff": ("diff", Why.FEW, "/diff"),
    "audit.scan_secrets": ("scan-secrets", Why.OPERATOR, Why.OPERATOR),
    "audit.export": ("export", Why.OPERATOR, "/audit"),
    "audit.subject": ("subject", Why.OPERATOR, "/audit"),
    "audit.receipts": (
        "audit",
        Why.OPERATOR,
        "/recall/receipts, /recall/receipts/{position}, /review, /review/{job}, POST /review",
    ),
    "audit.effects": ("effects", Why.FEW, "/recall/receipts"),
    "audit.judge": ("judge", Why.PERSON, "POST /recall/judge"),
    "audit.judgements": (Why.MISSING, Why.OPERATOR, Why.MISSING),
    "audit.forgotten": ("forgotten", Why.OPERATOR, "/forgetting/{request}"),
    "audit.erasures": ("forgotten", Why.OPERATOR, "/forgetting"),
    "audit.pending_erasures": ("forgotten", Why.OPERATOR, "/forgetting"),
    "models.list": ("model list", Why.OPERATOR, "/health"),
    "models.load": (Why.ON_THE_WAY, Why.ON_THE_WAY, Why.ON_THE_WAY),
    "models.activate": ("model activate", Why.OPERATOR, Why.OPERATOR),
    "models.drop": ("model drop", Why.OPERATOR, Why.OPERATOR),
    "admin.doctor": ("doctor", Why.OPERATOR, "/health, POST /health/check, POST /health/fix"),
    "admin.catch_up_views": (Why.ON_THE_WAY, Why.ON_THE_WAY, Why.ON_THE_WAY),
    "admin.catch_up_vectors": ("project", Why.OPERATOR, Why.OPERATOR),
    "admin.language": ("language", Why.OPERATOR, Why.OPERATOR),
    "admin.set_language": ("language", Why.OPERATOR, Why.OPERATOR),
    "admin.redaction": ("redaction", Why.OPERATOR, Why.OPERATOR),
    "admin.set_redaction": ("redaction", Why.OPERATOR, Why.OPERATOR),
    "admin.retention": ("retention", Why.OPERATOR, "/retention"),
    "admin.set_retention": ("set-retention", Why.OPERATOR, "POST /retention"),
    "admin.hold": ("hold", Why.OPERATOR, "POST /retention/hold"),
    "admin.lift_hold": ("lift-hold", Why.OPERATOR, "POST /retention/lift"),
    "admin.apply_retention": ("retention", Why.OPERATOR, "POST /retention/preview"),
    "admin.nodes": ("nodes", Why.OPERATOR, "/health"),
    "admin.remove_node": ("nodes", Why.OPERATOR, Why.OPERATOR),
    "admin.create_token": ("token create", Why.OPERATOR, "POST /tokens"),
    "admin.tokens": ("token list", Why.OPERATOR, "/tokens"),
    "admin.rotate_token": ("token rotate", Why.OPERATOR, Why.OPERATOR),
    "admin.revoke_token": ("token revoke", Why.OPERATOR, "POST /tokens/revoke"),
    "admin.reapply_erasures": ("restore", Why.OPERATOR, Why.OPERATOR),
    "admin.quarantine.items": ("quarantine list", Why.OPERATOR, "/health"),
    "admin.quarantine.status": ("status", Why.OPERATOR, "/health"),
    "admin.quarantine.purge": ("quarantine purge", Why.OPERATOR, Why.OPERATOR),
}
"""What has each operation, or why nothing does."""

BESIDE = {
    "init": (MemoryStore.open, prepare_database),
    "import": (import_files, import_log),
    "copy": (copy_store,),
    "restore": (restore_backup,),
    "keys": (wrap_keys,),
    "head": (AuditService.append_head,),
    "model add": (ModelService.add,),
}
"""What commands call that is no operation: it opens the store, or takes files of this machine."""

ELSE = {
    "serve": "serves all operations",
    "mcp": "serves the tools",
    "watch": "records what other programs write",
    "hermes install": "writes the settings of another program",
    "reads": "reads a file of the server",
    "/jobs/{job}": "the progress of what a form began",
}
"""Commands and pages that belong to no operation, and what they are."""

RENAMED = [
    # commands and tools (with brackets), option, parameter, and why where that is not plain
    ("recall, context, find", "role", "roles", "given once for each"),
    ("recall, context, find", "speaker", "speakers", "given once for each"),
    ("recall, context, find", "meta", "metadata", "one field of it"),
    ("import", "files", "paths", ""),
    ("import", "field", "fields", "given once for each"),
    ("show, memory get, memory list, task, notes, checkpoint list", "at", "when", ""),
    ("working_memory()", "as_of", "when", "as with the other tools"),
    ("switch", "from", "session", "beside --to"),
    ("forget", "position", "positions", "given once for each"),
    ("forget", "keep_questions", "questions", "the opposite is the default"),
    ("copy", "without_keys", "with_keys", "the opposite is the default"),
    ("init", "plain", "encrypt", "the opposite is the default"),
    ("facts", "history", "key", ""),
    ("retract", "position", "fact", ""),
    ("distrust", "undo", "distrust", ""),
    ("standing", "end", "statement", ""),
    ("lift-hold", "position", "hold", ""),
    ("task", "set", "description", ""),
    ("working_memory()", "task", "description", ""),
    ("notes", "add", "text", ""),
    ("working_memory()", "note", "text", ""),
    ("working_memory()", "delete", "key", "several"),
    ("working_memory()", "values", "value", "several"),
    ("replay, export", "from", "after", "the first position, not the one before it"),
    ("export", "to", "upto", "as of replay"),
    ("diff", "limit", "turns_max", "as of lists"),
    ("head", "append", "file", ""),
    ("judge", "good_turn", "good", "by its position, not its rank"),
    ("nodes", "remove", "node", ""),
    ("token create", "verb", "verbs", "given once for each"),
    ("token create", "scope", "scopes", "given once for each"),
    ("token create", "expires", "expires_in", "an age such as 30d"),
]
"""Options and arguments that are not called like the parameter that they are."""

OTHER_DEFAULTS = [
    ("record, remember()", "role", "most of what is recorded by hand is said by the user"),
    ("find", "limit", "a few screens"),
    ("session_current()", "agent", "the agent of the server"),
    ("timeline()", "after", "without it, the newest"),
    ("show", "session", "a flag beside the argument: a number is the id of one"),
    ("model drop", "model", "an option beside the argument: the model of the store"),
    ("init", "plain", "the opposite"),
    ("forget", "keep_questions", "the opposite"),
    ("copy", "without_keys", "the opposite"),
    ("replay, export", "from", "the first position, not the one before it"),
    ("export", "file", "standard output"),
    ("token create", "expires", "the same age in words"),
    ("token rotate", "revoke_old_after", "the same age in words"),
]
"""Options and arguments whose default is not that of the parameter."""

OWN = [
    ("init", "print_sql", "changes nothing"),
    ("record", "start", "calls `session` first"),
    ("import", "dry_run", "calls another function"),
    ("import", "vectors", "calls `catch_up_vectors` afterwards"),
    ("backup", "after_backup", "a program to run afterwards"),
    ("recall", "explain", "how it prints"),
    ("effects", "csv", "how it prints"),
    ("subject", "output", "a file to write"),
    ("switch", "dry_run", "calls `preview_switch`"),
    ("forget", "certificate", "a file to write"),
    ("forgotten", "erasures", "which list"),
    ("forgotten", "pending", "which list"),
    ("assert, memory set", "text", "how it reads the value"),
    ("notes", "clear", "calls `clear_notes`"),
    ("retention", "list", "calls `retention`"),
    ("set-retention", "recorded", "one of the two values of `by`"),
    ("replay, proposals", "jsonl", "how it prints"),
    ("approve, decline", "batch", "more positions, and edits"),
    ("propose_fact()", "key", "of the act"),
    ("propose_fact()", "value", "of the act"),
    ("propose_fact()", "valid_from", "of the act"),
    ("doctor", "dry_run", "the opposite of --fix"),
    ("doctor", "actor", "who acts, in each event"),
    ("keys", "wrap", "without it, a dry run"),
    ("session_list(), timeline()", "limit", "a model reads no endless list"),
    ("session_list()", "before", "the next page of it"),
]
"""Options that are no parameter, and what they are."""

EVERYWHERE = {"store", "model", "json", "full", "yes", "help"}
"""Options and arguments that mean the same in all commands: which store, how to print, and that it is meant."""

OF_SESSIONS = {operation.method for operation in OPERATIONS if operation.of_session}
THERE = {
    "command": {*every_command()},
    "tool": {*TOOLS},
    "page": {page.path for page in PAGES} | {f"POST {action.path}" for action in ACTIONS},
}


def operations_of(interface):
    """Return what a command, tool or page does: by its name the operations."""
    found = {}
    for operation in OPERATIONS:
        cell = REACHED[operation.name][list(THERE).index(interface)]
        for name in () if isinstance(cell, Why) else cell.split(", "):
            found.setdefault(name, []).append(operation)
    return found


def called(interface):
    """Return the methods and functions that a command, tool or page calls, by its name."""
    found = {name: [*methods] for name, methods in (BESIDE if interface == "command" else {}).items()}
    for name, operations in operations_of(interface).items():
        found.setdefault(name, []).extend(operation.method for operation in operations)
    return found


def test_every_operation_has_a_command_a_tool_and_a_page_or_a_reason():
    """A new one fails here until somebody has decided on its command, its tool and its page."""
    assert list(REACHED) == [operation.name for operation in OPERATIONS]
    assert {cell for row in REACHED.values() for cell in row if isinstance(cell, Why)} == set(Why)


@pytest.mark.parametrize("interface", THERE)
def test_what_has_an_operation_exists_and_everything_that_exists_has_one(interface):
    """What belongs to none says what it is."""
    assert called(interface).keys() | (ELSE.keys() & THERE[interface]) == THERE[interface]
    assert not called(interface).keys() & ELSE.keys()
    assert ELSE.keys() <= set().union(*THERE.values())


def test_a_tool_reads_if_its_operations_do():
    """One with another effect records in each of them, unless it can be called only to read."""
    for name, operations in operations_of("tool").items():
        reads = {operation.verb == "read" for operation in operations}
        expected = {True} if TOOLS[name].effect == "reads" else {False, True} if TOOLS[name].reads_too else {False}
        assert reads == expected, name


def test_a_page_asks_for_the_right_that_its_operation_needs():
    """A form does nothing that its reader could not do otherwise; what needs more is left out of a page."""
    verbs = {name: {item.verb for item in found} for name, found in operations_of("page").items()}
    for action in ACTIONS:
        assert verbs[f"POST {action.path}"] == {action.verb}, action.path
    for page in PAGES:
        assert page.verb in verbs.get(page.path, {"read"}), page.path


def options_of(command):
    """Return the options and arguments of a command as they are typed, with their defaults."""
    group, _, name = command.partition(" ")
    found = {}
    for item in (loaded(group).commands[name] if name else loaded(group)).params:
        typed = next((option[2:] for option in item.opts if option.startswith("--")), item.name)
        found[typed.replace("-", "_")] = item.type_cast_value(None, item.default)
    return found


def parameters_of(methods):
    """Return the parameters of methods, each with its defaults. A method of a session also has that."""
    found = {"session": [None]} if OF_SESSIONS & {*methods} else {}
    for method in methods:
        for item in inspect.signature(method).parameters.values():
            found.setdefault(item.name, []).append(plain(item.default))
    return found


def plain(default):
    """Return a default; None for all that says that nothing is given."""
    nothing = (inspect.Parameter.empty, msgspec.NODEFAULT, msgspec.UNSET, "", (), [], {})
    return None if default in nothing else default


def each(rows):
    """Return the rows of a list by command or tool, and option."""
    return {(name, option): rest for names, option, *rest in rows for name in names.split(", ")}


def test_an_option_has_the_name_and_the_default_of_the_parameter():
    """Of a command, or of a tool for agents. What differs is in a list, and a list has nothing else."""
    offered = {name: (options_of(name), methods) for name, methods in called("command").items()}
    for name, methods in called("tool").items():
        fields = msgspec.structs.fields(TOOLS[name].arguments)
        offered[f"{name}()"] = {field.name: field.default for field in fields}, methods
    renamed, own, other_defaults = each(RENAMED), set(), set()
    for name, (options, methods) in offered.items():
        parameters = parameters_of(methods)
        for option, default in options.items():
            parameter = renamed.get((name, option), [option])[0]
            if parameter in parameters:
                if plain(default) not in parameters[parameter]:
                    other_defaults.add((name, option))
            elif option not in EVERYWHERE:
                own.add((name, option))
    assert own == set(each(OWN))
    assert other_defaults == set(each(OTHER_DEFAULTS))
    assert renamed.keys() <= {(name, option) for name, (options, _) in offered.items() for option in options}


def test_a_hint_names_the_command_and_the_tool_of_the_operation():
    """Of each call that a hint of the library has."""
    for hinted, interface in ((COMMANDS_OF_HINTS, "command"), (TOOLS_OF_HINTS, "tool")):
        for call, template in hinted.items():
            name = next(name for name in THERE[interface] if f"{template} ".startswith(f"{name} "))
            assert call.rpartition(".")[2] in {method.__name__ for method in called(interface)[name]}, call


CALLED = {
    ast.literal_eval(node.args[0])
    for path in SOURCES
    for node in nodes_of(path)
    if isinstance(node, ast.Call)
    and ast.unparse(node.func) in ("remedy", "errors.remedy")
    and isinstance(node.args[0], ast.Constant)
}
OWNERS_OF = {name.removesuffix("."): [owner] for owner, name in OWNERS.items()} | {
    "": [MemoryStore, Session, mnemolog, opening],
    "MemoryStore": [MemoryStore],
    "admin.quarantine()": [Quarantine],
}
HINTS = [example.hint for example in EXAMPLES if isinstance(example.hint, Hint)]


def test_every_call_in_a_hint_is_a_call_of_the_library_and_has_a_command():
    """A renamed method or command cannot leave a hint behind."""
    assert COMMANDS.keys() == CALLED
    for call in CALLED:
        owner, _, name = call.rpartition(".")
        assert any(callable(getattr(known, name, None)) for known in OWNERS_OF[owner]), call


@pytest.mark.parametrize("hint", HINTS, ids=str)
def test_every_command_of_a_hint_is_one_that_can_be_run(hint):
    """Its arguments and options are those of the command."""
    begin(["recall", "memory", "dog"])
    for line in re.findall("`(mnemolog .*?)`", as_commands(hint)):
        _, name, *arguments = shlex.split(line)
        loaded(name).make_context(f"mnemolog {name}", arguments)


@pytest.mark.parametrize("hint", HINTS, ids=str)
def test_every_request_of_a_hint_has_a_route(hint):
    """Its path is one of the API."""
    for method, path in re.findall(rf"`(GET|POST|PUT|PATCH|DELETE) {PREFIX}(\S+)`", as_requests(hint)):
        patterns = {operation.http: [] for operation in ROUTES}
        for operation in ROUTES:
            patterns[operation.http].append(re.sub(r"{\w+}", "[^/]+", operation.path))
        assert any(re.fullmatch(pattern, path) for pattern in patterns[method]), path


WORDS = {
    "the library": (str, "`session('a b').delete_checkpoint('x')`, then `rebuild('vectors', skip_bad=True)`"),
    "the command line": (
        as_commands,
        "`mnemolog checkpoint delete 'my memory' 'a b' x`, then "
        "`mnemolog rebuild 'my memory' vectors --skip-bad --model mini`",
    ),
    "the API": (
        as_requests,
        "`DELETE /v1/sessions/a%20b/checkpoints/x`, then `POST /v1/rebuild` with "
        '{"projection": "vectors", "skip_bad": true}',
    ),
}


@pytest.mark.parametrize("interface", WORDS)
def test_a_hint_is_spelled_in_the_words_of_each_interface(interface):
    """With the values that are known, quoted as they have to be."""
    spell, expected = WORDS[interface]
    context = loaded("status").make_context("mnemolog status", ["my memory"])
    begin(["status", "my memory"]).context = context
    rebuild = remedy("rebuild", "vectors", with_model="MODEL", skip_bad=True)
    hint = with_model(Hint(remedy("delete_checkpoint", "x", of="a b"), ", then ", rebuild), "mini")
    assert spell(hint) == expected


def test_a_command_line_is_repeated_with_other_options():
    """An option that was given is replaced."""
    arguments = ["recall", "memory", "dog", "--model", "all-MiniLM-L6-v2"]
    begin(arguments).context = loaded("recall").make_context("mnemolog recall", arguments[1:])
    assert as_commands(Hint(again(model=None))) == "`mnemolog recall memory dog --model none`"
    assert (
        as_commands(Hint(again()))
        == "run the same command again: `mnemolog recall memory dog --model all-MiniLM-L6-v2`"
    )


def test_a_hint_for_an_agent_names_a_tool_or_what_its_user_can_call():
    """Its tools are fewer than the calls of the library."""
    hints = [Refusal.of(example).hint for example in EXAMPLES]
    named = {name for hint in hints for name in re.findall("`([a-z_]+)`", hint)}
    assert {"session_list", "remember", "switch", "working_memory"} <= named & TOOLS.keys()
    assert not [hint for hint in hints if re.search(r"`[^`]*\)`(?!, which the user can call)", hint)]


def test_a_hint_is_a_text_that_keeps_its_calls():
    """Joined with others, made a sentence of, or sent to another process."""
    hint = sentence(Hint("look: ", Hint(remedy("status"), " tells")))
    assert hint == "Look: `status()` tells."
    copied = pickle.loads(pickle.dumps(hint))
    assert copied == hint
    assert spelled(copied, lambda _: "X") == "Look: X tells."
    assert in_python(again()) == "call again"
