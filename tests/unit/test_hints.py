"""Hints name calls that exist, in the words of each interface."""

import ast
import pickle
import re
import shlex

import pytest

import mnemolog
from mnemolog.adapters.support.agent_tools.catalogue import TOOLS
from mnemolog.adapters.support.agent_tools.tool import Refusal
from mnemolog.cli.app import loaded
from mnemolog.cli.hints import COMMANDS, as_commands, begin
from mnemolog.domain.errors import Hint, again, in_python, remedy, sentence, spelled, with_model
from mnemolog.infra.log import open as opening
from mnemolog.operation_table import OWNERS
from mnemolog.projections.quarantine import Quarantine
from mnemolog.server.http.problems import as_requests
from mnemolog.server.http.routes import PREFIX, ROUTES
from mnemolog.session import Session
from mnemolog.store import MemoryStore
from tests.example_errors import EXAMPLES
from tests.unit.test_layers import SOURCES, nodes_of

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
