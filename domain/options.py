"""Options of a typed dict, shown as parameters: to `help`, notebooks, and all code that reads signatures."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Annotated, Any, NamedTuple, Required, TypeVar, get_args, get_origin, get_type_hints

Call = TypeVar("Call", bound=Callable[..., Any])


class Option(NamedTuple):
    """What a field of a typed dict is as a parameter: `by: Annotated[By, Option("which times count", default="said")]`.

    `means` is its line in the docstrings of the functions that take it. A field that is `Required` has no default.
    """

    means: str = ""
    default: Any = None


def takes_options(call: Call) -> Call:
    """Show each field of a typed dict as a parameter of a function that takes it as `**options: Unpack[…]`.

    Signature, type hints and docstring list the fields; in the docstring they replace the line that begins with
    "- `**". An argument that the function does not take raises `TypeError`.
    """
    hints = get_type_hints(call, include_extras=True)
    *own, variable = inspect.signature(call).parameters.values()
    (fields,) = get_args(hints.pop(variable.name))
    options = {name: _parameter(name, hint) for name, hint in get_type_hints(fields, include_extras=True).items()}
    known = {parameter.name for parameter in own} | options.keys()

    @wraps(call)
    def checked(*args: Any, **given: Any) -> Any:
        for name in given:
            if name not in known:
                raise TypeError(f"{call.__qualname__}() got an unexpected keyword argument {name!r}")
        return call(*args, **given)

    shown: Any = checked
    shown.__signature__ = inspect.Signature(
        [*(item.replace(annotation=hints.get(item.name, item.empty)) for item in own), *options.values()],
        return_annotation=hints["return"],
    )
    shown.__annotations__ = hints | {name: item.annotation for name, item in options.items()}
    shown.__doc__ = call.__doc__ and "\n".join(_documented(call.__doc__, fields))
    return shown  # type: ignore[no-any-return]


def meaning(fields: Any, name: str) -> str:
    """Return the description of an option."""
    return _option(get_type_hints(fields, include_extras=True)[name]).means


def _parameter(name: str, hint: Any) -> inspect.Parameter:
    default = _option(hint).default
    if get_origin(hint) is Required:
        (hint,), default = get_args(hint), inspect.Parameter.empty
    kind, *others = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    others = [item for item in others if not isinstance(item, Option)]
    kind = Annotated[(kind, *others)] if others else kind
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def _option(hint: Any) -> Option:
    if get_origin(hint) is Required:
        (hint,) = get_args(hint)
    return next((item for item in getattr(hint, "__metadata__", ()) if isinstance(item, Option)), Option())


def _documented(docstring: str, fields: Any) -> Iterator[str]:
    """Yield the lines of a docstring, with a line for each option in place of the one for all."""
    for line in inspect.cleandoc(docstring).splitlines():
        if line.startswith("- `**"):
            for name, hint in get_type_hints(fields, include_extras=True).items():
                yield f"- `{name}`: {_option(hint).means}"
        else:
            yield line
