"""The command line application: its commands, their order, and exit codes.

0 done, 1 refused or failed, 2 wrong usage or a value that is not valid, 3 the log is damaged, 130 interrupted.
"""

import copy
import difflib
import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn, cast

import typer
from typer.core import TyperCommand, TyperGroup

from mnemolog.cli import hints
from mnemolog.defaults import DEFAULT_MODEL
from mnemolog.domain import errors
from mnemolog.domain.display import visible

STORE_VARIABLE: Final = "MNEMOLOG_STORE"
RECEIPTS_VARIABLE: Final = "MNEMOLOG_RECEIPTS"
"""`1`: every `recall` and every server of tools records query and answer in the log."""
LOG_VARIABLE: Final = "MNEMOLOG_LOG"
"""`debug`, `info`, `warning` or `error`; append `:json` for JSON lines."""
KEY_FILE: Final = "MNEMOLOG_KEY_FILE"
"""As `mnemolog.infra.keys.keyring` has it, which no command has to import."""
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_DAMAGED = 3
EXIT_INTERRUPTED = 130

UsageError = cast("type[typer.BadParameter]", typer.BadParameter.__base__)
"""What Typer raises for wrong usage. Typer exports only this subclass of it."""

COMMANDS: Final = {
    "Start": {
        "init": ("store", "Create a store."),
        "record": ("sessions", "Record one turn of a conversation."),
        "import": ("importing", "Import conversations from files, or an exported log."),
        "recall": ("recall", "Find the turns that answer a question."),
        "context": ("recall", "Print what the memory has on a question, for a prompt."),
        "find": ("recall", "Find the turns that hold a phrase, in order of time."),
        "sessions": ("sessions", "List the sessions."),
        "show": ("sessions", "Print the turns of a session, or one event of the log."),
        "status": ("store", "Print what the store holds and whether it is up to date."),
    },
    "Sessions": {
        "switch": ("sessions", "Switch an agent to another session."),
        "current": ("sessions", "Print the session that an agent is in."),
        "scopes": ("sessions", "List the scopes of the sessions."),
        "agents": ("sessions", "List the agents and the sessions they are in."),
        "branch": ("sessions", "Start a session that continues another."),
        "rewind": ("sessions", "Hide the last turns of a session."),
        "forget": ("forgetting", "Erase what was said, permanently."),
        "forgotten": ("forgetting", "List what was erased."),
        "retention": ("forgetting", "Forget what is older than its scope allows."),
        "set-retention": ("forgetting", "Set how long what is said is kept."),
        "hold": ("forgetting", "Forget nothing of a scope for now."),
        "lift-hold": ("forgetting", "End a hold."),
    },
    "Facts": {
        "facts": ("facts", "List what holds, by key."),
        "standing": ("recall", "List what users said that should hold for every answer."),
        "assert": ("facts", "Say what a key has from a time on."),
        "retract": ("facts", "Take back a fact that was wrong."),
        "proposals": ("facts", "List what waits for a yes."),
        "propose": ("facts", "Propose what another person decides on."),
        "approve": ("facts", "Do what was proposed."),
        "decline": ("facts", "Decline what was proposed."),
    },
    "Working memory": {
        "memory": ("sessions", "Get, set, list and delete values."),
        "task": ("sessions", "Print or change the task."),
        "notes": ("sessions", "Print, add or clear notes."),
        "checkpoint": ("sessions", "Create and restore checkpoints."),
    },
    "History and audit": {
        "replay": ("history", "Print the events, and the state at a position."),
        "diff": ("history", "Print what changed between two positions."),
        "verify": ("store", "Check that the log was not changed."),
        "head": ("store", "Print position and digest of the last event."),
        "audit": ("recall", "Repeat earlier recalls and contexts and compare them."),
        "effects": ("history", "Print what a turn led to."),
        "distrust": ("history", "Show nothing of a source as an answer."),
        "distrusted": ("history", "List what is not trusted."),
        "judge": ("history", "Say which hits of an earlier recall were good."),
        "export": ("history", "Write the log as JSON Lines."),
        "subject": ("history", "Write one person's data to one file."),
        "reads": ("history", "Filter the lines that --audit-reads has written."),
        "scan-secrets": ("forgetting", "Find keys, tokens and passwords in the log."),
        "redaction": ("forgetting", "Print or change whether secrets are replaced before they are recorded."),
    },
    "Projections and models": {
        "project": ("store", "Embed the turns that have no vector yet."),
        "rebuild": ("store", "Rebuild projections from the log."),
        "model": ("store", "Add, activate and drop embedding models."),
        "language": ("store", "Print or change the language of the text index."),
    },
    "Maintenance": {
        "doctor": ("store", "Find problems and fix them."),
        "backup": ("store", "Copy a store while it is in use."),
        "restore": ("store", "Restore a backup into a new folder."),
        "copy": ("store", "Copy or move a store to another folder or database."),
        "quarantine": ("store", "List and purge unusable files."),
        "nodes": ("store", "List the nodes of a log in PostgreSQL."),
        "keys": ("store", "Wrap the content keys with a key kept elsewhere."),
    },
    "Integrations": {
        "serve": ("serve", "Serve the store to a team: API, console and MCP."),
        "token": ("serve", "Create, list and revoke the tokens of a server."),
        "mcp": ("serve", "Serve the store to agents over MCP."),
        "watch": ("importing", "Record transcripts of coding agents as they are written."),
        "hermes": ("serve", "Install mnemolog as the memory of Hermes."),
    },
}
"""The commands as help lists them: the module of each, and one line. Only the module of the command is imported."""

MODULES: Final = {name: module for panel in COMMANDS.values() for name, (module, _) in panel.items()}

SAME_AS: Final = {
    "search": "recall",
    "query": "recall",
    "grep": "find",
    "list": "sessions",
    "ls": "sessions",
    "stats": "status",
    "info": "status",
    "timeline": "replay",
    "history": "replay",
    "log": "replay",
}
"""Other words for commands that only read."""

DONE_BY: Final = {
    **dict.fromkeys(("add", "append", "remember"), "`mnemolog record` records a turn"),
    **dict.fromkeys(("create", "new"), "`mnemolog init` creates a store; `mnemolog record --start` starts a session"),
    "start": "`mnemolog record --start` starts a session with its first turn",
    **dict.fromkeys(
        ("delete", "remove", "rm"),
        "`mnemolog forget` erases what was said, permanently; `mnemolog memory delete` deletes one value",
    ),
    **dict.fromkeys(("update", "edit"), "recorded turns never change: record a correction with `mnemolog record`"),
    "undo": "`mnemolog rewind` hides the last turns of a session",
    "get": "`mnemolog memory get` prints a value; `mnemolog show` prints turns",
    "set": "`mnemolog memory set` sets a value of working memory",
    "load": "`mnemolog import` reads conversations and exported logs",
    "dump": "`mnemolog export` writes the log; `mnemolog backup` copies the store",
    "fork": "`mnemolog branch` starts a session that continues another",
    "check": "`mnemolog verify` checks the log; `mnemolog doctor` looks for problems",
    "repair": "`mnemolog doctor --fix` repairs what can be repaired",
    "models": "`mnemolog model list` lists the models",
    "checkpoints": "`mnemolog checkpoint list` lists the checkpoints of a session",
}
"""Words for which the command that does it is named, but not run: it writes, or takes other arguments."""


_LIST: Final = re.compile(r"<list\[(\w+)\]>")
UNWRAPPED: Final = "\b\n"
"""Begins a paragraph of help whose lines stay as they are."""


class Refused(Exception):
    """A command that cannot be done as given: why, what to do, and the exit status."""

    def __init__(self, why: str, *, hint: str, status: int = EXIT_FAILED) -> None:
        super().__init__(why)
        self.hint, self.status = hint, status


class Command(TyperCommand):
    """A command whose help shows its examples as they are typed."""

    def __init__(self, name: str | None, *, help: str | None = None, **settings: Any) -> None:  # noqa: A002
        super().__init__(name, help=help and help.replace("Example: ", f"{UNWRAPPED}Example: "), **settings)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return what stands in the usage: each argument by its metavar, whatever a version of Typer makes of it."""
        named = [str(item.metavar) for item in self.get_params(ctx) if item.param_type_name == "argument"]
        return [str(self.options_metavar), *(name if name.startswith("[") else f"{{{name}}}" for name in named)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments by their metavar, and options that may be repeated by the type of one value."""
        for heading, kind in (("Arguments", "argument"), ("Options", "option")):
            items: list[Any] = [item for item in self.get_params(ctx) if item.param_type_name == kind]
            records = [(item.metavar, *item.get_help_record(ctx)) for item in items]
            if rows := [(of if kind == "argument" else _LIST.sub(r"<\1>", name), text) for of, name, text in records]:
                with formatter.section(heading):
                    formatter.write_dl(rows)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, and keep the context for the hints of errors."""
        hints.parsed(ctx)
        return super().parse_args(ctx, args)


class StoreCommand(Command):
    """A command whose first argument is the store's folder; the environment variable is the default."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the folder from the environment unless the first argument is the folder."""
        store = os.environ.get(STORE_VARIABLE)
        if store and not set(ctx.help_option_names) & set(args) and self._needs_store(ctx, args):
            ctx.meta["store from"] = STORE_VARIABLE
            args = [store, *args]
        return super().parse_args(ctx, args)

    def _needs_store(self, ctx: Any, args: list[str]) -> bool:
        values, rest, order = self.make_parser(ctx).parse_args(list(args))
        arguments = [parameter for parameter in order if parameter.param_type_name == "argument"]
        given = [value for item in arguments if (value := values.get(str(item.name))) not in (None, ())]
        # With all arguments given, the first is the folder, whether it exists or not.
        full = len(given) == len(arguments) and not rest and all(item.nargs == 1 for item in arguments)
        return not given or not (Path(str(given[0])).is_dir() or full)


class Group(TyperGroup):
    """A command with subcommands. Without one, its help is printed."""

    other_words: Iterable[str] = ()
    """Which are taken for a subcommand, and suggested too."""
    all_of_them = "--help"
    """What lists the subcommands."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read no arguments as a request for help."""
        if not args and not ctx.resilient_parsing:
            args = [ctx.help_option_names[0]]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the subcommand, or suggest close ones."""
        name, rest = args[0], args[1:]
        if name in self.commands or ctx.resilient_parsing:
            return name, self.commands.get(name), rest
        raise Refused(
            f"`{ctx.command_path}` has no command {name!r}",
            hint=suggestion(name, [*self.commands, *self.other_words], f"{ctx.command_path} {self.all_of_them}"),
            status=EXIT_USAGE,
        )


class Commands(Group):
    """All commands. A command's module is imported when the command is used."""

    other_words = SAME_AS
    all_of_them = "more"
    panels: Iterable[str] = ("Start",)
    """Which help shows."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{**settings, "commands": {}})
        for commands in COMMANDS.values():
            for name, (_, line) in commands.items():
                self.add_command(TyperCommand(name, help=line))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read `help COMMAND` as `COMMAND --help`, `more` as help with every panel, and `version` as `--version`."""
        if args[:1] == ["help"]:
            args = [*args[1:], "--help"]
        elif args == ["more"]:
            self.panels = COMMANDS
            args = ["--help"]
        elif args == ["version"]:
            args = ["--version"]
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands by what they are for, in the order of the table."""
        for panel in self.panels:
            with formatter.section(panel):
                formatter.write_dl([(name, line) for name, (_, line) in COMMANDS[panel].items()])
        if self.panels is not COMMANDS:
            formatter.write(
                f"\n`mnemolog more` lists all {len(MODULES)} commands, `mnemolog help COMMAND` explains one.\n"
            )

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Import the command, which may be given by another word for it."""
        name = SAME_AS.get(args[0], args[0])
        if name in self.commands:
            self.add_command(loaded(name))
        elif name in DONE_BY and not ctx.resilient_parsing:
            raise Refused(f"there is no command {name!r}", hint=DONE_BY[name], status=EXIT_USAGE)
        return super().resolve_command(ctx, [name, *args[1:]])


def typed(command: str, *arguments: object) -> str:
    """Return a command line in backticks, such as `mnemolog sessions memory`, quoted for a shell."""
    return f"`{shlex.join(['mnemolog', *command.split(), *map(str, arguments)])}`"


def suggestion(name: str, known: list[str], help_command: str) -> str:
    """Return a hint that names the commands that are spelled almost like `name`."""
    close = difflib.get_close_matches(name, known, n=2, cutoff=0.7)
    close += [command for command in known if len(name) > 1 and command.startswith(name) and command not in close]
    listing = f"`{help_command}` lists the commands"
    return f"did you mean {' or '.join(map(repr, close))}? {listing}" if close else listing


app = typer.Typer(
    name="mnemolog",
    cls=Commands,
    help="A memory for AI agents: every turn is kept in an append-only log, and found again by words and by meaning.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
    epilog=f"DIR, the folder of the store, may be left out if {STORE_VARIABLE} is set.",
)
"""The application. The modules of the commands add them to it."""


def _folder(given: str) -> Path:
    """Return the folder of a store. Raises `Refused` for the URL of a database."""
    if "://" in given:
        raise Refused(
            f"{given} is a URL, and this command takes the folder of a store",
            hint="a log in PostgreSQL has a folder, too: `mnemolog init URL --log NAME --local DIR` makes it; name DIR",
            status=EXIT_USAGE,
        )
    return Path(given)


Store = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the store.", show_default=False, parser=_folder)]


AsJson = Annotated[bool, typer.Option("--json", help="Print the answer, or the error, as JSON.")]
Receipts = Annotated[
    bool,
    typer.Option(
        "--receipts", envvar=RECEIPTS_VARIABLE, help="Record every recall in the log, unless --read-only is given."
    ),
]


def _require_model(given: str) -> str:
    """Return the name of a model. Raises `ModelUnavailable` for another than the default one that is not there."""
    if given != DEFAULT_MODEL and chosen_model(given) is not None:
        from mnemolog.infra.embedding.model_files import read_profile, resolve_model

        read_profile(resolve_model(given))
    return given


WitnessFile = Annotated[
    Path | None,
    typer.Option(
        "--witness",
        envvar="MNEMOLOG_WITNESS",
        metavar="FILE",
        help="A file outside of the store that keeps heads of its log: what it remembers must be there.",
    ),
]
ModelName = Annotated[
    str,
    typer.Option(
        "--model",
        envvar="MNEMOLOG_MODEL",
        metavar="MODEL",
        callback=_require_model,
        help="Name or folder of a SentenceTransformer model, or 'none' to search by words only.",
    ),
]


def chosen_model(value: str) -> str | None:
    """Return the model to open a store with."""
    return None if value.lower() == "none" else value


def _print_version(asked: bool) -> None:
    if asked:
        from mnemolog.infra.version import this_version

        typer.echo(f"mnemolog {this_version()}")
        raise typer.Exit


@app.callback()
def _commands(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Log to stderr what is done: names and numbers, no content.")
    ] = False,
    witness: WitnessFile = None,
    key_file: Annotated[
        str | None,
        typer.Option(
            "--key-file", envvar=KEY_FILE, metavar="FILE", help="The key that the content keys are wrapped with."
        ),
    ] = None,
) -> None:
    if key_file is not None:
        os.environ[KEY_FILE] = key_file
    asked = "info" if verbose else os.environ.get(LOG_VARIABLE)
    if asked:
        from mnemolog.observability.json_logging import log_to_stderr

        try:
            log_to_stderr(asked)
        except errors.InvalidInput as error:
            raise Refused(f"{LOG_VARIABLE}: {error.why}", hint="correct it, or unset it", status=EXIT_USAGE) from error


def loaded(name: str) -> Any:
    """Import the module of a command and return the command."""
    import_module(f"mnemolog.cli.{MODULES[name]}")
    # Typer prepares every parameter of every registered command before it runs one.
    one = _copy_with(
        commands=[command for command in app.registered_commands if command.name == name],
        groups=[group for group in app.registered_groups if group.name == name],
    )
    one.info = copy.copy(app.info)
    one.info.cls = Group
    return cast(TyperGroup, typer.main.get_command(one)).commands[name]


def application() -> Commands:
    """Return the application as a command of Typer."""
    return cast(Commands, typer.main.get_command(_copy_with(commands=[], groups=[])))


def every_command() -> Iterator[str]:
    """Return every command and subcommand as it is typed, such as `checkpoint create`, in the order of help."""
    for name in MODULES:
        subcommands = getattr(loaded(name), "commands", None)
        yield from (f"{name} {sub}" for sub in subcommands) if subcommands else [name]


def _copy_with(*, commands: list[Any], groups: list[Any]) -> typer.Typer:
    one = copy.copy(app)
    one.registered_commands, one.registered_groups = commands, groups
    return one


def fail(why: str, *, hint: str, status: int = EXIT_FAILED) -> NoReturn:
    """Print to stderr, after an answer, why nothing was done and what to do about it, and exit."""
    print(f"error: {visible(why)}", file=sys.stderr)
    print(f"hint: {visible(hints.as_commands(hint))}", file=sys.stderr)
    raise typer.Exit(status)
