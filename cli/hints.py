"""What to do after an error, as commands with the arguments that were given."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from mnemolog.cli.app import typed
from mnemolog.domain import errors

_IN_PYTHON, _AS_OPTION = "(model=None)", "(--model none)"


class CommandLine:
    """What was typed: the command, its arguments and the store."""

    def __init__(self, arguments: list[str], ctx: Any) -> None:
        self.arguments = arguments
        self._ctx = ctx
        self.command = "" if ctx is None else ctx.command_path.partition(" ")[2]
        options = arguments[: arguments.index("--")] if "--" in arguments else arguments
        self.as_json = "--json" in options

    @property
    def store_from(self) -> str | None:
        """The environment variable that named the store, if it was not an argument."""
        return None if self._ctx is None else self._ctx.meta.get("store from")

    @property
    def again(self) -> str:
        """The same command line, to run again."""
        return self.again_with()

    def again_with(self, *options: str) -> str:
        """The same command line with further options."""
        return f"`{shlex.join(['mnemolog', *self.arguments, *options])}`"

    def value(self, name: str, default: str = "") -> str:
        """Return the value given for a parameter."""
        found = None if self._ctx is None else self._ctx.params.get(name)
        return default if found is None else str(found)

    def variable_of(self, name: str) -> str:
        """Return ` (from VARIABLE)` if an environment variable gave the value of a parameter."""
        return "" if self._ctx is None else variable_of(self._ctx, name)

    def on_store(self, command: str, *arguments: object) -> str:
        """Return a command line for the same store."""
        store = self.value("store")
        return typed(command, *([store] if store else []), *arguments)

    def parameter(self, name: str) -> str | None:
        """Return a parameter of the command as it is typed: `--said-at`, or `QUERY`."""
        parameters = [] if self._ctx is None else self._ctx.command.params
        return next((shown(item) for item in parameters if item.name == name), None)


def variable_of(ctx: Any, name: str) -> str:
    """Return ` (from VARIABLE)` if an environment variable gave the value of a parameter."""
    if getattr(ctx.get_parameter_source(name), "name", "") != "ENVIRONMENT":
        return ""
    return next((f" (from {item.envvar})" for item in ctx.command.params if item.name == name), "")


def shown(parameter: Any) -> str:
    """Return an option or an argument as it is typed."""
    if parameter.param_type_name == "option":
        return str(next((name for name in parameter.opts if name.startswith("--")), parameter.opts[0]))
    return str(parameter.metavar or parameter.name.upper()).strip("[].")


def message_of(error: errors.MnemologError, line: CommandLine) -> str:
    """Return the text of an error in the words of the command line."""
    if isinstance(error, errors.InvalidInput) and (name := line.parameter(error.field)) is not None:
        return f"{name}: {error.why}{line.variable_of(error.field)}"
    if isinstance(error, errors.StoreError) and line.store_from is not None:
        return f"{error} (from {line.store_from})"
    variable = line.variable_of("model") if isinstance(error, errors.ModelError) else ""
    return str(error).replace(_IN_PYTHON, _AS_OPTION) + variable


def hint_for(error: errors.MnemologError, line: CommandLine) -> str:
    """Return what to do about an error. Notes of the error say how much was done before it."""
    return "; ".join((*getattr(error, "__notes__", ()), _hint(error, line)))


def _hint(error: errors.MnemologError, line: CommandLine) -> str:
    for kind in type(error).__mro__:
        if kind in HINTS:
            return HINTS[kind](error, line)
    return error.hint


def interrupted(error: KeyboardInterrupt, line: CommandLine) -> str:
    """Return what an interrupted command kept, and how to continue. Notes of the error say how much was done."""
    kept, again = INTERRUPTED.get(line.command, ("", _AGAIN))
    notes = getattr(error, "__notes__", ()) or (kept,)
    return "; ".join(part for part in (*notes, again.format(line.again)) if part)


def _not_found(error: errors.StoreNotFound, line: CommandLine) -> str:
    create = f"create a store there: {typed('init', error.path)}"
    if line.store_from is not None:
        return f"set {line.store_from} to the folder of a store, or {create}"
    return f"check the path, or {create}"


def _not_a_store(error: errors.NotAStore, line: CommandLine) -> str:
    return (
        "nothing was changed; name the folder of a store, or a new or empty folder to create one with `mnemolog init`"
    )


def _replaced(error: errors.StoreReplaced, line: CommandLine) -> str:
    if error.hint != errors.StoreReplaced.hint:  # Its database has lost events.
        doctor = line.on_store("doctor")
        return error.hint if "`" not in error.hint else f"nothing was recorded; {doctor} says what was lost"
    return f"nothing more was acknowledged; put the files of the store back, or restore a backup; then {line.again}"


def _network(error: errors.NetworkFilesystem, line: CommandLine) -> str:
    allow = "MNEMOLOG_ALLOW_NETWORK_FILESYSTEM=1"
    return f"put the store on a local disk; if only this machine ever opens it, you may set {allow}"


def _no_backup(error: errors.BackupRefused, line: CommandLine) -> str:
    from mnemolog.operations.backup_manifest import BACKUP_FILE

    if line.command == "backup" and (error.path / BACKUP_FILE).exists():
        return "nothing was changed; add --replace to replace the earlier backup, or name another folder"
    return error.hint


def _unknown_session(error: errors.UnknownSession, line: CommandLine) -> str:
    choose = f"{line.on_store('sessions')} lists the sessions"
    return f"add --start to start it, or choose another: {choose}" if line.command == "record" else choose


def _differs(error: errors.SessionDiffers, line: CommandLine) -> str:
    return f"leave out --{error.attribute} to continue that session, or choose another id"


def _exists(error: errors.SessionExists, line: CommandLine) -> str:
    resume = line.on_store("switch", "--reason", "resume", "--to", error.session)
    return f"nothing was written; choose another id, or continue that session: {resume}"


def _ended(error: errors.SessionAlreadyEnded, line: CommandLine) -> str:
    resume = line.on_store("switch", "--reason", "resume", "--to", error.session)
    return (
        f"nothing was written; reopen it: {resume}; or continue in a branch: {line.on_store('branch', error.session)}"
    )


def _no_task(error: errors.NoTask, line: CommandLine) -> str:
    return f"nothing was written; set one first: {line.on_store('task', error.session, '--set', 'what to do')}"


def _unknown_checkpoint(error: errors.UnknownCheckpoint, line: CommandLine) -> str:
    return f"{line.on_store('checkpoint list', error.session)} lists the checkpoints"


def _checkpoint_exists(error: errors.CheckpointExists, line: CommandLine) -> str:
    delete = line.on_store("checkpoint delete", error.session, error.checkpoint)
    return f"nothing was written; choose another name, or delete that checkpoint first: {delete}"


def _outside(error: errors.OutsideSession, line: CommandLine) -> str:
    return f"give a position from {error.first} to {error.last}, or a time between theirs"


def _invalid(error: errors.InvalidInput, line: CommandLine) -> str:
    explained = f"`{' '.join(['mnemolog', *line.command.split(), '--help'])}` explains it"
    return f"correct the value; {explained}"


def _too_large(error: errors.LimitExceeded, line: CommandLine) -> str:
    return "split or shorten the value"


def _full(error: errors.MemoryFull, line: CommandLine) -> str:
    values = line.on_store("memory list", line.value("session"))
    return f"nothing was written; delete values that are no longer needed: {values} lists them"


def _damaged(error: errors.LogDamaged, line: CommandLine) -> str:
    from mnemolog.operations.recovery_commands import put_keys_back, restore_newest_backup

    if isinstance(error.__cause__, errors.KeysMissing):  # A backup or a restore looked whether the keys fit.
        if line.command == "restore":
            return "nothing was restored; name the folder of the newest copy of its keys with --keys"
        return put_keys_back(Path(line.value("store")), error.__cause__)
    if line.command == "restore":
        return "nothing was restored; keep the backup as evidence, and restore an earlier one"
    store = line.value("store")
    if not store:
        return error.hint
    return f"stop writing to it and keep {store} as evidence; {restore_newest_backup(Path(store))}"


def _keys_missing(error: errors.KeysMissing, line: CommandLine) -> str:
    from mnemolog.operations.recovery_commands import put_keys_back

    if error.path != Path(line.value("store")) / error.path.name:
        return error.hint
    return f"nothing counts as forgotten; {put_keys_back(error.path.parent, error)}"


def _undecodable(error: errors.UndecodableEvent, line: CommandLine) -> str:
    if line.command == "verify":
        return f"a newer mnemolog may know this topic; otherwise {_damaged(error, line)}"
    return f"a newer mnemolog may know this topic; otherwise check the log: {line.on_store('verify')}"


def _projection(error: errors.ProjectionError, line: CommandLine) -> str:
    return f"rebuild it from the log: {line.on_store('rebuild', 'all')}"


def _behind(error: errors.ProjectionBehind, line: CommandLine) -> str:
    return f"wait longer, or rebuild it: {line.on_store('rebuild')}"


def _unreadable(error: errors.ProjectionUnreadable, line: CommandLine) -> str:
    return f"quarantine damaged files and rebuild them from the log: {line.on_store('doctor', '--fix')}"


def _mismatch(error: errors.ModelMismatch, line: CommandLine) -> str:
    return f"name the active model with --model; {line.on_store('model list')} shows it"


def _no_model(error: errors.ModelUnavailable, line: CommandLine) -> str:
    if error.model is None:
        return "name a model with --model"
    return error.hint.replace(_IN_PYTHON, _AS_OPTION)


def _model_refused(error: errors.ModelRefused, line: CommandLine) -> str:
    return f"nothing was changed; {line.on_store('model list')} lists the models and which one is active"


def _encoding(error: errors.EncodingFailed, line: CommandLine) -> str:
    skip = line.on_store("rebuild", "vectors", "--skip-bad")
    return f"the turn is safe in the log and found by words; correct the cause and run again, or skip the turn: {skip}"


def _refused_line(error: errors.ImportRefused, line: CommandLine) -> str:
    if line.command == "verify":
        return "give the folder of a store, or an export as `mnemolog export` writes it"
    if line.command != "import":
        return "nothing of this line was written; correct it and run the command again"
    again = f"run the same command again: {line.again}; turns that exist are skipped"
    if "--field" in str(error):
        again = line.again if "--dry-run" in line.arguments else line.again_with("--dry-run")
        return f"name the field; {again} shows which field becomes what"
    if error.skippable:
        return f"correct the line and {again}; or leave out such lines: {line.again_with('--skip-bad')}"
    return f"correct the file and {again}; `mnemolog import --help` names the formats"


def _witness(error: errors.WitnessUnreadable, line: CommandLine) -> str:
    if error.line is None:
        return f"check the path; {line.on_store('head', '--append', error.path)} creates it"
    return "keep the file, find out what wrote that line, and give a copy without it"


HINTS: Final[dict[type, Callable[[Any, CommandLine], str]]] = {
    errors.StoreNotFound: _not_found,
    errors.NotAStore: _not_a_store,
    errors.StoreReplaced: _replaced,
    errors.NetworkFilesystem: _network,
    errors.BackupRefused: _no_backup,
    errors.InvalidInput: _invalid,
    errors.LimitExceeded: _too_large,
    errors.MemoryFull: _full,
    errors.UnknownSession: _unknown_session,
    errors.SessionExists: _exists,
    errors.SessionDiffers: _differs,
    errors.SessionAlreadyEnded: _ended,
    errors.NoTask: _no_task,
    errors.UnknownCheckpoint: _unknown_checkpoint,
    errors.CheckpointExists: _checkpoint_exists,
    errors.OutsideSession: _outside,
    errors.KeysMissing: _keys_missing,
    errors.LogDamaged: _damaged,
    errors.UndecodableEvent: _undecodable,
    errors.ProjectionError: _projection,
    errors.ProjectionBehind: _behind,
    errors.ProjectionUnreadable: _unreadable,
    errors.ModelMismatch: _mismatch,
    errors.ModelUnavailable: _no_model,
    errors.ModelRefused: _model_refused,
    errors.EncodingFailed: _encoding,
    errors.ImportRefused: _refused_line,
    errors.WitnessUnreadable: _witness,
}
"""The hint of each class of errors. For other classes, the hint of the library is true here as well."""

_AGAIN: Final = "to continue, run the same command again: {}"
INTERRUPTED: Final = {
    "import": ("", f"{_AGAIN}; turns that exist are skipped"),
    "rebuild": ("the former projections still answer, and embedded texts are kept", _AGAIN),
    "project": ("embedded turns are kept", _AGAIN),
    "model add": ("embedded turns are kept", _AGAIN),
    "model activate": ("the former model is still active; embedded turns are kept", _AGAIN),
    "recall": ("nothing was changed, except that texts that were embedded are kept", _AGAIN),
    "verify": ("nothing was changed; the log is not verified", _AGAIN),
    "backup": ("no backup was made; the store is as it was", _AGAIN),
    "restore": ("nothing was restored", _AGAIN),
    "export": ("no file was written", _AGAIN),
    "forget": ("what was requested is recorded and will be completed", _AGAIN),
    "doctor": ("what was fixed stays fixed", _AGAIN),
    "mcp": ("the server has stopped; all that it recorded is kept", ""),
    "serve": ("the server has stopped; all that it recorded is kept", ""),
    "reconcile": ("messages that were recorded are kept", f"{_AGAIN}; only missing ones are added"),
}
"""What an interrupted command kept, and how to continue."""
