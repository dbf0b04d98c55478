"""Options of a typed dict, shown as parameters: to `help`, notebooks, and all code that reads signatures."""

import inspect
from collections.abc import Callable, Container, Iterator
from functools import cache, wraps
from typing import Annotated, Any, Final, NamedTuple, Required, TypeVar, cast, get_args, get_origin, get_type_hints

ELSEWHERE: Final = {
    **dict.fromkeys(("search", "query"), "recall"),
    **dict.fromkeys(("add", "add_message", "remember"), "record"),
    **dict.fromkeys(("get_all", "messages", "history"), "turns"),
    **dict.fromkeys(("delete", "delete_all", "remove"), "forget"),
    **dict.fromkeys(("limit", "top_k", "n_results"), "k"),
    **dict.fromkeys(("user_id", "namespace"), "scope"),
    **{"list_sessions": "sessions", "add_note": "note", "agent_id": "agent", "session_id": "session"},
}
"""Names in other memories, and the method or parameter that does the same here."""

Call = TypeVar("Call", bound=Callable[..., Any])
Fields = TypeVar("Fields")


class Option(NamedTuple):
    """What a field of a typed dict is as a parameter: `by: Annotated[By, Option("which times count", "said")]`.

    `means` is its line in the docstrings of the functions that take it. A field that is `Required` has no default.
    """

    means: str = ""
    default: Any = None


def takes_options(call: Call) -> Call:
    """Show each field of a typed dict as a parameter of a function that takes it as `**options: Unpack[…]`.

    Signature, type hints and docstring list the fields; in the docstring they replace the line that begins with
    "- `**". An argument that is missing, or that the function does not take, raises `TypeError`.
    """
    hints = get_type_hints(call, include_extras=True)
    *own, variable = inspect.signature(call).parameters.values()
    (fields,) = get_args(hints.pop(variable.name))
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=option.default, annotation=kind)
        for name, (kind, option) in options_of(fields).items()
    ]
    known = {item.name for item in (*own, *options)}
    required = [item.name for item in options if item.default is item.empty]

    @wraps(call)
    def checked(*args: Any, **given: Any) -> Any:
        for name in given:
            if name not in known:
                here = named_here(name, known)
                raise TypeError(f"{call.__qualname__}() got an unexpected keyword argument {name!r}{here}")
        for name in required:
            if name not in given:
                raise TypeError(f"{call.__qualname__}() missing 1 required keyword-only argument: {name!r}")
        return call(*args, **given)

    shown: Any = checked
    shown.__signature__ = inspect.Signature(
        [*(item.replace(annotation=hints.get(item.name, item.empty)) for item in own), *options],
        return_annotation=hints["return"],
    )
    shown.__annotations__ = hints | {item.name: item.annotation for item in options}
    shown.__doc__ = call.__doc__ and "\n".join(_documented(call.__doc__, fields))
    return shown  # type: ignore[no-any-return]


def named_here(name: str, known: Container[str]) -> str:
    """Return what to add to an error about an unknown name: the one of `known` that does what it does elsewhere."""
    here = ELSEWHERE.get(name, "")
    return f"; here it is {here!r}" if here in known else ""


@cache
def options_of(fields: Any) -> dict[str, tuple[Any, Option]]:
    """Return the fields of a typed dict: the type of each, and what it is as a parameter."""
    return {name: _option(hint) for name, hint in get_type_hints(fields, include_extras=True).items()}


def with_defaults(fields: type[Fields], given: Fields) -> Fields:
    """Return the options of a typed dict: those that were given, and the others with their defaults."""
    defaults = {name: option.default for name, (_, option) in options_of(cast(Any, fields)).items()}
    return cast(Fields, defaults | cast(dict[str, Any], given))


def _option(hint: Any) -> tuple[Any, Option]:
    is_required = get_origin(hint) is Required
    if is_required:
        (hint,) = get_args(hint)
    kind, *others = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    option = next((item for item in others if isinstance(item, Option)), Option())
    others = [item for item in others if item is not option]
    kind = Annotated[(kind, *others)] if others else kind
    return kind, option._replace(default=inspect.Parameter.empty) if is_required else option


def _documented(docstring: str, fields: Any) -> Iterator[str]:
    """Yield the lines of a docstring, with a line for each option in place of the one for all."""
    for line in inspect.cleandoc(docstring).splitlines():
        if line.startswith("- `**"):
            yield from (f"- `{name}`: {option.means}" for name, (_, option) in options_of(fields).items())
        else:
            yield line
