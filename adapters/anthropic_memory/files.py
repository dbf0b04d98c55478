"""Anthropic's memory tool over facts: its six commands, and the files that they change."""

import re
import uuid
from functools import partial
from typing import Any, Final

from anthropic.lib.tools import BetaAbstractMemoryTool, BetaAsyncAbstractMemoryTool, ToolError

from mnemolog.adapters.support.store_access import with_pools
from mnemolog.aio.store import AsyncMemoryStore
from mnemolog.domain.encoding import to_printable_json
from mnemolog.domain.errors import ContentForgotten, DuplicateKey, InvalidInput, LimitExceeded
from mnemolog.domain.facts import FILES
from mnemolog.domain.request import request_key
from mnemolog.projections.read_models import Fact
from mnemolog.store import MemoryStore

ROOT: Final = "/memories"
MAKER: Final = "memory tool"
LEVELS: Final = 2
"""Levels of folders that a view lists."""
AROUND: Final = 2
"""Lines before and after a change that its answer shows."""


class MemoryFiles:
    """The files of one scope. Safe for many threads and processes: no edit is lost."""

    def __init__(self, store: MemoryStore, scope: str | None) -> None:
        self._store, self._scope = store, scope

    def answer(self, command: Any) -> str:
        """Return the answer to a command. Raises the SDK's `ToolError`, which it gives to the model."""
        try:
            answer: str = getattr(self, f"_{command.command}")(command)
        except (InvalidInput, LimitExceeded) as error:
            raise ToolError(f"{error}; {error.hint}" if error.hint else str(error)) from error
        return answer

    def _view(self, command: Any) -> str:
        path = self._path(command.path)
        found = None if path == ROOT else self._find(path)
        if found is None:
            return self._listed(path, command.path)
        lines = _text(found).split("\n")
        first, last = 1, len(lines)
        if command.view_range and len(command.view_range) == 2:
            first = max(1, command.view_range[0])
            last = last if command.view_range[1] == -1 else command.view_range[1]
        return f"Here's the content of {command.path} with line numbers:\n{_numbered(lines, first, last)}"

    def _listed(self, path: str, named: str) -> str:
        sizes: dict[str, int] = {}
        for fact in self._below(path):
            below = fact.key.removeprefix(_key(path)).removeprefix("/").split("/")
            for level in range(min(len(below), LEVELS)):
                name = "/".join(below[: level + 1]) + ("/" if level + 1 < len(below) else "")
                sizes[name] = sizes.get(name, 0) + len(_text(fact).encode())
        if not sizes and path != ROOT:
            raise _missing(named)
        total = sum(size for name, size in sizes.items() if "/" not in name.rstrip("/"))
        rows = [f"{_size(size)}\t{path}/{name}" for name, size in sorted(sizes.items())]
        header = f"Here're the files and directories up to {LEVELS} levels deep in {named}, excluding hidden items:"
        return "\n".join([header, f"{_size(total)}\t{path}", *rows])

    def _create(self, command: Any) -> str:
        path = self._path(command.path)
        if self._is_taken(path):
            raise ToolError(f"File {command.path} already exists")
        return f"File created successfully at: {command.path}" + self._put(path, command.file_text, None)

    def _str_replace(self, command: Any) -> str:
        path, found = self._file(command.path)
        old = command.old_str
        text = _text(found)
        lines = [text.count("\n", 0, match.start()) + 1 for match in re.finditer(f"(?={re.escape(old)})", text)]
        if not lines or not old:
            why = f"old_str `{old}` did not appear verbatim in {command.path}."
            raise ToolError(f"No replacement was performed, {why}")
        if len(lines) > 1:
            where = f"Multiple occurrences of old_str `{old}` in lines: {', '.join(map(str, lines))}."
            raise ToolError(f"No replacement was performed. {where} Please ensure it is unique")
        changed = text.replace(old, command.new_str)
        note = self._put(path, changed, found)
        shown = _numbered(changed.split("\n"), max(1, lines[0] - AROUND), lines[0] + AROUND)
        header = "The memory file has been edited. Here is the snippet showing the change (with line numbers):"
        return f"{header}\n{shown}{note}"

    def _insert(self, command: Any) -> str:
        path, found = self._file(command.path)
        text = _text(found)
        lines = text.removesuffix("\n").split("\n") if text else []
        if not 0 <= command.insert_line <= len(lines):
            raise ToolError(
                f"Invalid `insert_line` parameter: {command.insert_line}. "
                f"It should be within the range [0, {len(lines)}]."
            )
        lines.insert(command.insert_line, command.insert_text.rstrip("\n"))
        return f"The file {command.path} has been edited." + self._put(path, "\n".join(lines) + "\n", found)

    def _delete(self, command: Any) -> str:
        path = self._path(command.path)
        if path == ROOT:
            raise ToolError("Cannot delete the /memories directory itself")
        for fact in self._all(path, command.path):
            self._put(f"/{fact.key}", None, fact)
        return f"Successfully deleted {command.path}"

    def _rename(self, command: Any) -> str:
        old, new = self._path(command.old_path), self._path(command.new_path)
        if old == ROOT:
            raise ToolError("Cannot rename the /memories directory itself")
        moved = self._all(old, command.old_path)
        if self._is_taken(new):
            raise ToolError(f"The destination {command.new_path} already exists")
        if f"{new}/".startswith(f"{old}/"):
            raise ToolError(f"Cannot move {command.old_path} into itself")
        for fact in moved:  # The new name first: a crash between the two leaves the file under both.
            self._put(f"{new}{fact.key.removeprefix(_key(old))}", _text(fact), None)
            self._put(f"/{fact.key}", None, fact)
        return f"Successfully renamed {command.old_path} to {command.new_path}"

    def _path(self, path: str) -> str:
        """Return a path without a slash at its end. Raises `ToolError` for one outside of the folder."""
        if path != ROOT and not path.startswith(f"{ROOT}/"):
            raise ToolError(f"Path must start with {ROOT}, got: {path}")
        if {".", ".."} & {*path.split("/")}:
            raise ToolError(f"Path {path} would escape {ROOT} directory")
        return path.rstrip("/")

    def _find(self, path: str) -> Fact | None:
        return self._store.fact(_key(path), scope=self._scope)

    def _below(self, path: str) -> list[Fact]:
        """Return the files below a folder, of exactly this scope."""
        found = self._store.facts(f"{_key(path)}/*", scope=self._scope or "")
        return [fact for fact in found if self._scope is None or fact.scope == self._scope]

    def _is_taken(self, path: str) -> bool:
        """Whether there is a file or a folder, or a file where a folder above it would be."""
        above = [path[:end] for end, letter in enumerate(path) if letter == "/" and end > len(ROOT)]
        return path == ROOT or any(self._find(item) is not None for item in [path, *above]) or bool(self._below(path))

    def _all(self, path: str, named: str) -> list[Fact]:
        """Return a file, or all below a folder. Raises `ToolError` if there is neither."""
        found = self._find(path)
        files = self._below(path) if found is None else [found]
        if not files:
            raise ToolError(f"The path {named} does not exist")
        return files

    def _file(self, named: str) -> tuple[str, Fact]:
        path = self._path(named)
        found = None if path == ROOT else self._find(path)
        if found is None:
            if path == ROOT or self._below(path):
                raise ToolError(f"The path {named} is not a file.")
            raise _missing(named)
        return path, found

    def _put(self, path: str, text: str | None, read: Fact | None) -> str:
        """Give a file a text, or end it; return what the answer has to add. Raises `ToolError` if it changed meanwhile.

        The key of the write names the assertion that was read, so that of two writes after one reading the log accepts
        one. A key that was used by what was taken back or forgotten since makes room for the next.
        """
        key = _key(path)
        after = 0 if read is None else read.position
        while True:
            try:
                with request_key(f"{uuid.uuid5(uuid.NAMESPACE_URL, key)} after {after}", uuid.uuid4().hex):
                    made = self._store.assert_fact(key, text, scope=self._scope, maker=MAKER)
            except ContentForgotten as error:
                after = error.position
            except DuplicateKey as error:
                now = self._find(path)
                if (now and now.position) != (read and read.position):
                    raise ToolError(f"{path} was changed by another call meanwhile. View it again.") from error
                after = self._store.fact_history(key, scope=self._scope)[-1].position
            else:
                is_kept = made.value == text
                return "" if is_kept else f"\nSecrets were replaced before it was recorded. It now has:\n{made.value}"


def _text(file: Fact) -> str:
    """Return what a file holds; of a value of another kind, which others asserted under its key, the JSON."""
    return file.value if isinstance(file.value, str) else to_printable_json(file.value).decode()


def _key(path: str) -> str:
    """Return the key of the fact that a file is."""
    return FILES + path.removeprefix(ROOT).removeprefix("/") if path != ROOT else FILES.rstrip("/")


def _size(size: int) -> str:
    """Return a number of bytes as the SDK's tool has it, such as `512B` and `1.5K`."""
    return f"{size}B" if size < 1024 else f"{size / 1024:.1f}K".replace(".0K", "K")


def _numbered(lines: list[str], first: int, last: int) -> str:
    return "\n".join(f"{number:>6}\t{line}" for number, line in enumerate(lines[first - 1 : last], start=first))


def _missing(named: str) -> ToolError:
    return ToolError(f"The path {named} does not exist. Please provide a valid path.")


class MemoryTool(BetaAbstractMemoryTool):
    """The memory tool over the files of one scope.

    - `store`: the store that keeps the files
    - `scope`: who owns them; None for the scope that the store is open for
    - `how`: further arguments of `BetaAbstractMemoryTool`, such as `cache_control`

    ::

        tool = MemoryTool(store, scope="acme/alice")
        tool.call({"command": "create", "path": "/memories/likes.md", "file_text": "tea"})
    """

    def __init__(self, store: MemoryStore, *, scope: str | None = None, **how: Any) -> None:
        super().__init__(**how)
        self._files = MemoryFiles(store, scope)

    def _answer(self, command: Any) -> str:
        return self._files.answer(command)

    view = create = str_replace = insert = delete = rename = _answer


class AsyncMemoryTool(BetaAsyncAbstractMemoryTool):
    """`MemoryTool` for asyncio. Each command runs in a thread of the store."""

    def __init__(self, store: MemoryStore | AsyncMemoryStore, *, scope: str | None = None, **how: Any) -> None:
        super().__init__(**how)
        blocking, self._pools = with_pools(store)
        self._files = MemoryFiles(blocking, scope)

    async def _answer(self, command: Any) -> str:
        return await self._pools.write(partial(self._files.answer, command))

    view = create = str_replace = insert = delete = rename = _answer
