"""A store behind tools for a language model, and what a tool is: its arguments, answers and refusals."""

import asyncio
import difflib
import inspect
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, Generic, Literal, Self, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta
from msgspec import inspect as inspected

from mnemolog.adapters.support.store_access import with_pools
from mnemolog.aio.store import AsyncMemoryStore
from mnemolog.defaults import DEFAULT_AGENT
from mnemolog.domain import errors
from mnemolog.domain.encoding import to_printable_json
from mnemolog.domain.result import Results
from mnemolog.domain.values import Position
from mnemolog.projections.projector import START_DELAY_S
from mnemolog.projections.recall.answer import Hit

MODEL_WAIT_S: Final = 5.0
"""How long a recall waits for a model that is being loaded, before it searches by words."""
NO_MODEL: Final = "none: searching by words only"
"""The state of the model of a store that was opened without one."""


class Memory:
    """A store to serve. `agent` is the default of calls; with `read_only`, tools that append are not offered."""

    def __init__(self, store: AsyncMemoryStore, *, agent: str = DEFAULT_AGENT, read_only: bool = False) -> None:
        self.store = store
        self.agent = agent
        self.read_only = read_only
        self.proposes = not read_only
        """Whether facts can be proposed."""
        self.one_person_approves = not with_pools(store)[0].parts.proposals.four_eyes
        """Whether the person who is at the client may approve what is proposed there."""
        self.model = "loading"
        """`loading`, `ready`, `NO_MODEL`, or why the model cannot be loaded."""
        self._loading: asyncio.Task[None] | None = None

    @property
    def folder(self) -> Path:
        """The folder of the store."""
        return self.store.path

    async def memory(self) -> "Memory":
        """Return this memory. One that is still being opened waits here."""
        return self

    async def before_refusal(self, began: float) -> None:
        """Wait before a call is refused that began at that time (`time.monotonic`). Here it returns at once."""

    @asynccontextmanager
    async def loading(self) -> AsyncIterator[None]:
        """Load the model in the background. Until it is loaded, recall waits `MODEL_WAIT_S`, then searches by words."""
        task = self._loading = asyncio.create_task(self._load())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def is_loaded(self) -> bool:
        """Wait for the model, `MODEL_WAIT_S` at most. Return whether it is loaded, or cannot be."""
        if self._loading is not None:
            await asyncio.wait({self._loading}, timeout=MODEL_WAIT_S)
        return self.model != "loading"

    async def _load(self) -> None:
        if not with_pools(self.store)[0].parts.projections.has_model:
            self.model = NO_MODEL
            return
        await asyncio.sleep(START_DELAY_S)  # Answer the greeting first: importing torch may block everything else.
        try:
            await self.store.models.load()
            self.model = "ready"
        except Exception as error:  # `status` reports it; text search still works.
            self.model = str(error) if isinstance(error, errors.MnemologError) else repr(error)


@asynccontextmanager
async def opened(folder: Path, *, agent: str, read_only: bool, **how: Any) -> AsyncIterator[Memory]:
    """Open the memory of a store; create the store unless `read_only`. `how` as in `MemoryStore.open`."""
    async with AsyncMemoryStore.open(folder, create=not read_only, **how) as store:
        yield Memory(store, agent=agent, read_only=read_only)


Result = TypeVar("Result")
Arguments = TypeVar("Arguments", bound=msgspec.Struct)
Effect = Literal["reads", "adds", "settles", "hides"]
"""What a tool does to the log: nothing; append; append once, however often it is called; hide turns or values."""

NOTHING_DONE: Final = "correct the arguments and call again"
LOOK_UP: Final = "timeline shows what was written; the server's log has more"
CALLS: Final = {
    "sessions": "session_list",
    "session": "remember",
    "switch": "switch",
    "branch": "session_branch",
    "set_task": "working_memory",
    "checkpoints": "checkpoint_list",
    "recall": "recall",
    "status": "status",
}
"""The tools that do what calls of the library do."""
_NOTHING_WRITTEN: Final = "nothing was written; "

SYNONYMS: Final = {
    **dict.fromkeys(("k", "limit"), ("k", "limit", "top_k", "n", "count")),
    **dict.fromkeys(("session", "to"), ("session", "session_id", "conversation", "thread_id")),
    **{"text": ("content", "message", "messages"), "values": ("set", "value"), "scope": ("user_id",)},
    **{"since": ("start",), "until": ("end",)},
}
"""Arguments, and the names that models try for them."""

PARAMETERS: Final[dict[str, Any]] = {
    "session": Annotated[
        str, Meta(description="Id of a session, as given to remember or switch, or listed by session_list.")
    ],
    "title": Annotated[str | None, Meta(description="A title for people.")],
    "scope": Annotated[str | list[str], Meta(description="Paths like acme/alice; each includes all below it.")],
    "value": Annotated[Any, Meta(description="Any JSON value, null included, up to 256 KiB.")],
    "ttl": Annotated[float | None, Meta(description="Seconds until it expires. Null: never.")],
    "checkpoint": Annotated[str, Meta(description="Id or name of a checkpoint.")],
}
"""Types of parameters that need a description."""

_ANY: Final[set[type]] = {inspected.AnyType}
_REAL: Final[set[type]] = {inspected.FloatType}
_NOT_TEXT: Final = _REAL | {
    *(inspected.IntType, inspected.BoolType, inspected.ListType, inspected.DictType, inspected.NoneType),
}

_log = logging.getLogger(__name__)


def _lean(value: Any) -> Any:
    """Return a value with its structs as objects, these without nulls and empty lists, texts and objects."""
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.asdict(value).items()
        return {name: lean for name, item in fields if (lean := _lean(item)) not in (None, "", [], {})}
    if isinstance(value, list | tuple):
        return [_lean(item) for item in value]
    return value


def _tool_for(found: errors.Remedy) -> str:
    """Return the tool that makes a call. Calls without one are for the user."""
    if not found.call:
        return errors.in_python(found) if found.options else "call the tool again"
    if (name := CALLS.get(found.call)) is None:
        return f"{errors.in_python(found)}, which the user can call"
    given = ", ".join(f"{option}={value!r}" for option, value in found.options.items())
    return f"`{name}`" + (f" with {given}" if given else "")


def _allowed(schema: Mapping[str, Any], field: Mapping[str, Any]) -> str:
    """Return in words what a field of a schema may hold."""
    if "$ref" in field:
        field = schema["$defs"][field["$ref"].rpartition("/")[2]]
    if "enum" in field:
        return "one of " + ", ".join(str(value) for value in field["enum"] if value is not None)
    if "anyOf" in field:
        return " or ".join(filter(None, (_allowed(schema, one) for one in field["anyOf"] if one.get("type") != "null")))
    return str(field.get("type", ""))


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A result that is complete: a tool answers it without the head of the log."""


class Answer(msgspec.Struct, Generic[Result], frozen=True, kw_only=True):
    """The answer of a tool. `position` is the head of the log: before the read, or after the write."""

    position: Position
    result: Result
    next: Position | None = None
    """Set if the `limit` left some out: `before` or `after` for those."""

    def __str__(self) -> str:
        """Return it as text for a model: a text as it is, anything else as JSON without what is empty."""
        if isinstance(self.result, str):
            return self.result
        return to_printable_json(_lean(self.result if isinstance(self.result, Shown) else self)).decode()


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why a call failed, in words that a model can act on."""

    what: str
    hint: str

    @classmethod
    def of(cls, error: errors.MnemologError) -> Self:
        """Return the refusal for an error of the library."""
        hint = errors.spelled(error.hint, _tool_for).removeprefix(_NOTHING_WRITTEN)
        return cls(what=f"{type(error).__name__}: {error}", hint=hint)

    def __str__(self) -> str:
        return f"{self.what}\nhint: {self.hint}" if self.hint else self.what


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A call for clients, with its description. Its answers are text."""

    name: str
    description: str
    function: Callable[..., Awaitable[Any]]
    effect: Effect
    arguments: type[msgspec.Struct]
    returns: Any
    reads_too: bool = False
    """Whether it can be called only to read, although it writes as well."""

    @property
    def input_schema(self) -> dict[str, Any]:
        """The JSON Schema of its arguments."""
        return schema_of(self.arguments)

    @property
    def output_schema(self) -> dict[str, Any] | None:
        """The JSON Schema of its answers, None where these are text. An answer leaves out what is empty."""
        return None if self.returns is str else schema_of(self.returns, requires=False)

    async def ask(self, memory: Memory, arguments: Mapping[str, Any]) -> Answer[Any] | Refusal:
        """Return an answer or a refusal. Never raises: a failed call must not end the service of other clients."""
        try:
            return await self.call(memory, arguments)
        except msgspec.ValidationError as error:
            return Refusal(what=f"InvalidArguments: {self._what_is_wrong(arguments, error)}", hint=NOTHING_DONE)
        except errors.MnemologError as error:
            return Refusal.of(error)
        except errors.ScopeWarning as warning:  # Where warnings are errors, as in the server of the command line.
            return Refusal(what=f"UnknownScope: {warning}", hint="use one of these scopes, or leave `scope` out")
        except Exception as error:
            _log.exception("tool %s failed", self.name)
            return Refusal(what=f"internal error: {error!r}", hint=LOOK_UP)

    def _what_is_wrong(self, arguments: Any, error: msgspec.ValidationError) -> str:
        """Return what is wrong with arguments, and what is allowed."""
        known = self.input_schema["properties"]
        if not isinstance(arguments, Mapping):
            return f"expected an object with {', '.join(known)}"
        for name in arguments:
            if name not in known:
                names = {tried: right for right in known for tried in SYNONYMS.get(right, ())}
                close = difflib.get_close_matches(str(name), [*known, *names], n=1)
                guess = f" (did you mean {names.get(close[0], close[0])!r}?)" if close else ""
                return f"{self.name} has no argument {name!r}{guess}; it takes {', '.join(known)}"
        named = re.search(r"`\$\.(\w+)", str(error))
        allowed = _allowed(self.input_schema, known[named[1]]) if named and named[1] in known else ""
        return f"{error}{allowed and f'; {named[1]} is {allowed}'}" if named else str(error)

    async def call(self, memory: Memory, arguments: Mapping[str, Any]) -> Answer[Any]:
        """Return the answer. Raises `msgspec.ValidationError` for invalid arguments: nothing was done."""
        given = msgspec.structs.asdict(read_arguments(self.arguments, arguments))
        before = await memory.store.head()
        result = await self.function(memory, **given)
        after = before if self.effect == "reads" else await memory.store.head()
        return Answer(position=after.position, result=result, next=getattr(result, "next", None))


def made(
    name: str,
    effect: Effect,
    function: Callable[..., Awaitable[Any]],
    description: str,
    *,
    like: Callable[..., Any] | None = None,
    returns: Any = None,
    leave_out: tuple[str, ...] = (),
    reads_too: bool = False,
    **types: Any,
) -> Tool:
    """Return the tool that calls `function` with a memory and the keywords of `like`, by default its own.

    `types` adds keywords, which come first, or overrides the types of the signature. `returns` is the type of the
    results, by default that of the signature.
    """
    signature = inspect.signature(like or function).parameters
    hints = get_type_hints(like or function, include_extras=True)
    described = {key for key, hint in hints.items() if hasattr(hint, "__metadata__")}
    known = hints | {key: type_ for key, type_ in PARAMETERS.items() if key not in described} | types
    defaults: dict[str, Any] = {key: inspect.Parameter.empty for key in types if key not in signature}
    defaults |= {key: item.default for key, item in signature.items() if key not in ("self", "memory", *leave_out)}
    fields: list[Any] = [
        (key, known[key]) if default is inspect.Parameter.empty else (key, known[key], default)
        for key, default in defaults.items()
    ]
    arguments = msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True)
    returns = hints["return"] if returns is None else returns
    if get_origin(returns) is Results:
        returns = list[get_args(returns)]  # type: ignore[misc]
    is_whole = isinstance(returns, type) and issubclass(returns, str | Shown)
    return Tool(
        name=name,
        description=" ".join(description.split()),
        function=function,
        effect=effect,
        arguments=arguments,
        returns=returns if is_whole else Answer[returns],
        reads_too=reads_too,
    )


def read_arguments(type_: type[Arguments], given: Any) -> Arguments:
    """Return the arguments of a call. Null means not given; numbers and lists may be sent as text.

    Raises `msgspec.ValidationError`.
    """
    if isinstance(given, Mapping):
        kinds = _kinds_of(type_)
        read = {name: _as_wanted(value, kinds.get(name, _ANY)) for name, value in given.items()}
        given = {name: value for name, value in read.items() if value is not None or kinds.get(name, set()) & _ANY}
    return msgspec.convert(given, type_)


@cache
def _kinds_of(type_: type[msgspec.Struct]) -> dict[str, set[type]]:
    """Return for each field of a struct the kinds of values that it takes, as classes of `msgspec.inspect`."""
    return {field.name: _kinds(inspected.type_info(field.type)) for field in msgspec.structs.fields(type_)}


def _kinds(type_: inspected.Type) -> set[type]:
    if isinstance(type_, inspected.Metadata):
        return _kinds(type_.type)
    if isinstance(type_, inspected.UnionType):
        return set[type]().union(*map(_kinds, type_.types))
    return {type(type_)}


def _as_wanted(value: Any, kinds: set[type]) -> Any:
    """Return a value as one of these kinds, if it is written in another way than JSON has it."""
    is_list = inspected.ListType in kinds and isinstance(value, str) and value.startswith("[")
    if is_list or (isinstance(value, str) and kinds <= _NOT_TEXT):
        with suppress(msgspec.DecodeError):
            value = msgspec.json.decode(value)
    is_whole = isinstance(value, float) and value.is_integer() and kinds & {inspected.IntType} and not kinds & _REAL
    return int(value) if is_whole else value


@cache  # Lazily: most schemas are never needed.
def schema_of(type_: Any, *, requires: bool = True) -> dict[str, Any]:
    """Return the JSON Schema of a struct, inlined at the top level, where clients expect an object.

    With `requires=False` an object may leave out any of its fields.
    """
    (reference,), parts = msgspec.json.schema_components([type_], ref_template="#/$defs/{name}")
    own: dict[str, Any] = parts.pop(reference["$ref"].rpartition("/")[2])
    return _short(own | ({"$defs": parts} if parts else {}), requires=requires)


def _short(schema: dict[str, Any], *, requires: bool) -> dict[str, Any]:
    """Return a schema without what costs a model tokens and says nothing: titles, nulls, empty defaults."""

    def short(item: Any) -> Any:
        if isinstance(item, list):
            return [short(each) for each in item]
        return _short(item, requires=requires) if isinstance(item, dict) else item

    if "properties" in schema:
        schema = schema | {"properties": {key: short(item) for key, item in schema["properties"].items()}}
    kept = {
        key: item if key == "properties" else short(item)
        for key, item in schema.items()
        if not (key == "title" or (key == "default" and not item) or (key == "required" and not (requires and item)))
    }
    if "enum" in kept:
        kept["enum"] = [value for value in kept["enum"] if value is not None]
    if "anyOf" in kept:
        some = [item for item in kept.pop("anyOf") if item != {"type": "null"}]
        kept = {**some[0], **kept} if len(some) == 1 else {"anyOf": some, **kept}
    return kept


class _Recall(msgspec.Struct, kw_only=True):
    query: Annotated[str, Meta(description="What to look for, in the words that may have been used.")]


class _Remember(msgspec.Struct, kw_only=True):
    text: Annotated[str, Meta(description="One fact that can be understood without this conversation.")]


class ConversationTool(msgspec.Struct, frozen=True, kw_only=True):
    """A blocking tool. `call` gets checked arguments."""

    name: str
    description: str
    arguments: type[msgspec.Struct]
    call: Callable[[Any], Mapping[str, Any]]

    def function(self) -> dict[str, Any]:
        """Return it in OpenAI's function format."""
        return {"name": self.name, "description": self.description, "parameters": schema_of(self.arguments)}

    def answer(self, arguments: Mapping[str, Any]) -> str:
        """Return the answer as JSON, `error` and `hint` for arguments and errors of mnemolog. Raises others."""
        try:
            answer = self.call(read_arguments(self.arguments, arguments))
        except msgspec.ValidationError as error:
            answer = {"error": str(error), "hint": NOTHING_DONE}
        except errors.MnemologError as error:
            answer = {"error": str(error), "hint": Refusal.of(error).hint}
        return to_printable_json(answer).decode()


def conversation_tools(
    recall: Callable[[str], Iterable[Hit]], remember: Callable[[str], str], *, prefix: str = ""
) -> dict[str, ConversationTool]:
    """Return the tools `recall` and `remember` by their names, which begin with `prefix`.

    `recall` answers a query, within what this model may see; `remember` records a text and returns what was kept.
    """
    tools = (
        ConversationTool(
            name=f"{prefix}recall",
            description="Find what was said in any earlier conversation, word for word, with date, session and "
            "position in the log. Use it before you answer about anything that may have been discussed before, or that "
            "a summary left out.",
            arguments=_Recall,
            call=lambda asked: {
                "found": [
                    {name: getattr(hit, name) for name in ("text", "role", "said_at", "session", "position")}
                    for hit in recall(asked.query)
                ]
            },
        ),
        ConversationTool(
            name=f"{prefix}remember",
            description="Keep something for later conversations. Turns are kept anyway: use this for a finding or "
            "a decision.",
            arguments=_Remember,
            call=lambda asked: {"kept": remember(asked.text)},
        ),
    )
    return {tool.name: tool for tool in tools}
