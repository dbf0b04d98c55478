"""A tool derived from a function or a method: its signature is the schema of the arguments."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from functools import cache
from typing import Annotated, Any, Final, Generic, Literal, Self, TypeVar, get_type_hints

import msgspec
from msgspec import Meta

from mnemolog.adapters.support.agent_tools.memory import Memory
from mnemolog.domain.errors import MnemologError, UnknownSession
from mnemolog.domain.position import Position
from mnemolog.domain.role import Role

Result = TypeVar("Result")
Effect = Literal["reads", "adds", "settles", "hides"]
"""What a tool does to the log: nothing; append; append once, however often it is called; hide turns or values."""

NOTHING_DONE: Final = "nothing was written; correct the arguments and call again"
UNKNOWN_SESSION: Final = "nothing was written; session_list lists the ids; session_start, where offered, starts one"
LOOK_UP: Final = "timeline shows what was written; the server's log has more"

Moment = Annotated[datetime, Meta(tz=True, description="ISO 8601 with a time zone.")]
PARAMETERS: Final[dict[str, Any]] = {
    "session": Annotated[
        str, Meta(description="Id of a session, as given to session_start or listed by session_list.")
    ],
    "id": Annotated[str | None, Meta(description="Id of the session; started if there is none. Null: generated.")],
    "title": Annotated[str | None, Meta(description="A title for people.")],
    "parent": Annotated[str | None, Meta(description="The session that this one works for.")],
    "agent": Annotated[str | None, Meta(description="Agent of the session. Null: the default agent of this server.")],
    "scope": Annotated[str, Meta(description="A path like acme/support/alice; a scope includes everything below it.")],
    "role": Role,
    "roles": list[Role],
    "text": Annotated[str, Meta(description="Word for word. Up to 1 MiB for a turn, 64 KiB for a note.")],
    "value": Annotated[Any, Meta(description="Any JSON value, null included, up to 256 KiB.")],
    "ttl": Annotated[float | None, Meta(description="Seconds until it expires. Null: never.")],
    "said_at": Moment | None,
    "since": Moment | None,
    "until": Moment | None,
    "k": Annotated[int, Meta(description="Maximum number of turns.", ge=1, le=100)],
    "as_of": Annotated[int | None, Meta(description="State at this log position. Null: now.")],
    "checkpoint": Annotated[str, Meta(description="Id or name of a checkpoint.")],
}
"""Types of parameters that need a description, or that JSON does not have."""

_log = logging.getLogger(__name__)


class Answer(msgspec.Struct, Generic[Result], frozen=True, kw_only=True):
    """The answer of a tool. `position` is the head of the log: before the read, or after the write."""

    position: Position
    result: Result


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why a call failed, in words that a model can act on."""

    what: str
    hint: str

    @classmethod
    def of(cls, error: MnemologError) -> Self:
        """Return the refusal for an error of the library."""
        hint = UNKNOWN_SESSION if isinstance(error, UnknownSession) else error.hint
        return cls(what=f"{type(error).__name__}: {error}", hint=hint)

    def __str__(self) -> str:
        return f"{self.what}\nhint: {self.hint}" if self.hint else self.what


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A call for clients, with its description."""

    name: str
    description: str
    function: Callable[..., Awaitable[Any]]
    effect: Effect
    arguments: type[msgspec.Struct]
    answer: Any
    """The type of its answer."""

    @property
    def input_schema(self) -> dict[str, Any]:
        """The JSON Schema of its arguments."""
        return schema_of(self.arguments)

    @property
    def output_schema(self) -> dict[str, Any]:
        """The JSON Schema of its answers."""
        return schema_of(self.answer)

    async def ask(self, memory: Memory, arguments: Mapping[str, Any]) -> Answer[Any] | Refusal:
        """Return an answer or a refusal. Never raises: a failed call must not end the service of other clients."""
        try:
            return await self.call(memory, arguments)
        except msgspec.ValidationError as error:
            return Refusal(what=f"InvalidArguments: {error}", hint=NOTHING_DONE)
        except MnemologError as error:
            return Refusal.of(error)
        except Exception as error:
            _log.exception("tool %s failed", self.name)
            return Refusal(what=f"internal error: {error!r}", hint=LOOK_UP)

    async def call(self, memory: Memory, arguments: Mapping[str, Any]) -> Answer[Any]:
        """Return the answer. Raises `msgspec.ValidationError` for invalid arguments: nothing was done."""
        given = msgspec.structs.asdict(msgspec.convert(arguments, self.arguments))
        if "agent" in given and given["agent"] is None and given.get("session") is None:
            given["agent"] = memory.agent
        before = await memory.store.head()
        result = await self.function(memory, **given)
        after = before if self.effect == "reads" else await memory.store.head()
        return Answer(position=after.position, result=result)


def made(
    name: str,
    effect: Effect,
    function: Callable[..., Awaitable[Any]],
    description: str,
    *,
    like: Callable[..., Any] | None = None,
    leave_out: tuple[str, ...] = (),
    result: Any = None,
    **types: Any,
) -> Tool:
    """Return the tool that calls `function` with a memory and the keywords of `like`, by default its own.

    `types` adds keywords, which come first, or overrides the types of the signature.
    """
    signature = inspect.signature(like or function).parameters
    hints = get_type_hints(like or function, include_extras=True)
    described = {key for key, hint in hints.items() if hasattr(hint, "__metadata__")}
    known = hints | {key: type_ for key, type_ in PARAMETERS.items() if key not in described} | types
    defaults: dict[str, Any] = {key: inspect.Parameter.empty for key in types if key not in signature}
    defaults |= {key: item.default for key, item in signature.items() if key not in ("self", "memory", *leave_out)}
    if "agent" in defaults:
        defaults["agent"] = None
    fields: list[Any] = [
        (key, known[key]) if default is inspect.Parameter.empty else (key, known[key], default)
        for key, default in defaults.items()
    ]
    arguments = msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True)
    answer: Any = Answer
    return Tool(
        name=name,
        description=" ".join(description.split()),
        function=function,
        effect=effect,
        arguments=arguments,
        answer=answer[known["return"] if result is None else result],
    )


@cache  # Lazily: most schemas are never needed.
def schema_of(type_: Any) -> dict[str, Any]:
    """Return the JSON Schema of a struct, inlined at the top level, where clients expect an object."""
    (reference,), parts = msgspec.json.schema_components([type_], ref_template="#/$defs/{name}")
    own: dict[str, Any] = parts.pop(reference["$ref"].rpartition("/")[2])
    return own | ({"$defs": parts} if parts else {})
