"""A tool made of a function or of a method of the library, whose signature is the schema of its arguments."""

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
from mnemolog.domain.errors import MnemologError
from mnemolog.domain.position import Position
from mnemolog.domain.role import Role

Result = TypeVar("Result")
Effect = Literal["reads", "adds", "settles", "hides"]
"""What it does to the log: nothing; adds to it; adds, but nothing when called again; hides what is there."""

NOTHING_DONE: Final = "nothing was written; correct the arguments and call again"
LOOK_UP: Final = "timeline shows what was written; the server's log has more"

Moment = Annotated[datetime, Meta(tz=True, description="ISO 8601 with a time zone.")]
PARAMETERS: Final[dict[str, Any]] = {
    "session": Annotated[str, Meta(description="Id of a session, as session_start and session_list tell it.")],
    "session_id": Annotated[str | None, Meta(description="Id for it: a retry starts no second one. Null: made up.")],
    "agent": Annotated[str | None, Meta(description="Whose session. Null: the agent that this server is for.")],
    "scope": Annotated[str, Meta(description="A path like acme/support/alice; a scope covers all below it.")],
    "role": Role,
    "roles": list[Role],
    "text": Annotated[str, Meta(description="Word for word. A turn holds up to 1 MiB, a note 64 KiB.")],
    "value": Annotated[Any, Meta(description="Any JSON value, null included, up to 256 KiB.")],
    "ttl": Annotated[float | None, Meta(description="Seconds until it expires. Null: never.")],
    "said_at": Moment | None,
    "since": Moment | None,
    "until": Moment | None,
    "k": Annotated[int, Meta(description="How many turns at most.", ge=1, le=100)],
    "as_of": Annotated[int | None, Meta(description="As it was at this position of the log. Null: now.")],
    "checkpoint": Annotated[str, Meta(description="Id or name of a checkpoint.")],
}
"""Parameters that the library's own signatures say too little of, or say in types that JSON has not."""

_log = logging.getLogger(__name__)


class Answer(msgspec.Struct, Generic[Result], frozen=True, kw_only=True):
    """What a tool answers. `position` is where the log ended: before it was read, and behind what was written."""

    position: Position
    result: Result


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why a tool did not answer, in words that a model can act upon."""

    what: str
    hint: str

    @classmethod
    def of(cls, error: MnemologError) -> Self:
        """Return what an error of the library is to a client."""
        return cls(what=f"{type(error).__name__}: {error}", hint=error.hint)

    def __str__(self) -> str:
        return f"{self.what}\nhint: {self.hint}" if self.hint else self.what


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A call that a client can make, and what the client is told of it."""

    name: str
    description: str
    function: Callable[..., Awaitable[Any]]
    effect: Effect
    arguments: type[msgspec.Struct]
    answer: Any
    """The type of what it answers."""

    @property
    def input_schema(self) -> dict[str, Any]:
        """The JSON Schema of its arguments."""
        return schema_of(self.arguments)

    @property
    def output_schema(self) -> dict[str, Any]:
        """The JSON Schema of its answers."""
        return schema_of(self.answer)

    async def ask(self, memory: Memory, arguments: Mapping[str, Any]) -> Answer[Any] | Refusal:
        """Answer, or say why not, whatever goes wrong: no call of one client ends the service of others."""
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
        """Answer. Raises `msgspec.ValidationError` for arguments that do not fit: nothing was done."""
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
    """Return the tool that calls `function` with a memory, and with keywords as `like` has them, or else its own.

    `types` are further keywords, which come first, or other types than the signature has.
    """
    signature = inspect.signature(like or function).parameters
    hints = get_type_hints(like or function, include_extras=True)
    told = {key for key, hint in hints.items() if hasattr(hint, "__metadata__")}
    known = hints | {key: type_ for key, type_ in PARAMETERS.items() if key not in told} | types
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


@cache  # Made when first asked for, which of most never is.
def schema_of(type_: Any) -> dict[str, Any]:
    """Return the JSON Schema of a struct, that struct itself at the top, where clients look for an object."""
    (reference,), parts = msgspec.json.schema_components([type_], ref_template="#/$defs/{name}")
    own: dict[str, Any] = parts.pop(reference["$ref"].rpartition("/")[2])
    return own | ({"$defs": parts} if parts else {})
