"""What to do next, as text with calls in it that each interface spells in its own way.

The library shows `rebuild('vectors')`, the command line a command with the store in it, the API
`POST /v1/rebuild` with its body, and the tools of agents the name of a tool.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath
from typing import Any, Final, NamedTuple

ANY_MODEL: Final = "MODEL"
"""Stands for the name of a model until it is known."""


class Remedy(NamedTuple):
    """A call that helps. Make one with `remedy` or `again`."""

    call: str
    """The method as a caller of the store writes it: `rebuild`, `admin.doctor`. Empty: the call that failed."""
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    of: str | None = None
    """The id of the session whose method it is."""
    model: str = ""
    """The model that the store has to be opened with for this; empty if any will do."""


def remedy(call: str, *arguments: object, of: str | None = None, with_model: str = "", **options: object) -> Remedy:
    """Return a call of the store, or with `of` of one of its sessions."""
    return Remedy(call, arguments, options, of, with_model)


def again(**options: object) -> Remedy:
    """Return the call that failed, to be made again with these options."""
    return Remedy("", (), options)


class Hint(str):
    """What to do next. As a string it names calls of the library."""

    parts: tuple[str | Remedy, ...]

    def __new__(cls, *parts: str | Remedy) -> Hint:
        """Join texts, hints and remedies."""
        flat = tuple(piece for part in parts for piece in (part.parts if isinstance(part, Hint) else (part,)))
        made = super().__new__(cls, "".join(_spelled(part, in_python) for part in flat))
        made.parts = flat
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return Hint, self.parts


def spelled(text: str, spell: Callable[[Remedy], str]) -> str:
    """Return a text with the remedies in it, if it is a hint, spelled by `spell`."""
    return "".join(_spelled(part, spell) for part in text.parts) if isinstance(text, Hint) else text


def with_model(text: str, model: str) -> str:
    """Return a text whose remedies name the model that the store has to be opened with; empty if it is unknown."""
    if not isinstance(text, Hint):
        return text
    return Hint(
        *(part._replace(model=model) if isinstance(part, Remedy) and part.model else part for part in text.parts)
    )


def as_plain(value: Any) -> str:
    """Return what JSON does not know as text: a hint in the words of the library, anything else as its `repr`."""
    return str(value) if isinstance(value, Hint) else repr(value)


def in_python(found: Remedy) -> str:
    """Return a remedy as a call of the library."""
    given = [_literal(value) for value in found.arguments]
    given += [f"{name}={_literal(value)}" for name, value in found.options.items()]
    if not found.call:
        return f"`{', '.join(given)}`" if given else "call again"
    owner = "" if found.of is None else f"session({found.of!r})."
    return f"`{owner}{found.call}({', '.join(given)})`"


def sentence(text: str) -> Hint:
    """Return a hint as a sentence."""
    first, *others = text.parts if isinstance(text, Hint) else (text,)
    return Hint(first[:1].upper() + first[1:] if isinstance(first, str) else first, *others, ".")


def _literal(value: object) -> str:
    return repr(str(value) if isinstance(value, PurePath) else value)


def _spelled(part: str | Remedy, spell: Callable[[Remedy], str]) -> str:
    return spell(part) if isinstance(part, Remedy) else str(part)
