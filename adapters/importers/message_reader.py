"""Make turns of messages: which field fills which part, and which values are in no turn."""

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import repeat
from typing import Any, Final

import msgspec

from mnemolog.adapters.importers.turn import (
    DEFAULT_FIELDS,
    DEFAULT_MAP,
    EMPTY,
    NOT_SAID,
    OF,
    PLANS_MAX,
    FieldMap,
    Format,
    Found,
    ImportedTurn,
    LeftOut,
    Lookup,
    Message,
    TurnMaker,
    stem_of,
    text_or_none,
    unwrapped,
    usual_names,
)
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.message import Role, folded, left_out_of, may_tell_role, names_model, role_beside, role_of, said_in
from mnemolog.domain.values import quoted

REASONS_MAX: Final = 200
"""Reasons that are counted apart: names of fields may come from users, and be without end."""
FIELDS_KEPT_MAX: Final = 10_000
MORE: Final = "of other fields"
LONG: Final = 20
"""Characters of a value that, found in a text of a turn, did not get there by chance."""
FIELD: Final = "field "
_KINDS: Final = ("type", "content_type")
"""What says how its neighbours are read."""
_TEXTS: Final = frozenset(("text", "content", "parts", "message", "payload"))

Leaf = str | int | float | bool


def count(left_out: Counter[str], reasons: Iterable[str]) -> None:
    """Count reasons."""
    for reason in reasons:
        left_out[reason if reason in left_out or len(left_out) < REASONS_MAX else MORE] += 1


class Turns:
    """What the turns of one message hold. `also` are values that were read beside."""

    def __init__(self, turns: Sequence[ImportedTurn], also: Iterable[object] = ()) -> None:
        self._words: set[object] = set(also)
        self.objects, self._text = list[Any](), "\n".join([turn.text for turn in turns])
        self._lines, self._values = set[str](), set[str]()
        for turn in turns:
            self._words |= {turn.speaker, turn.session, turn.session_title, turn.scope, turn.agent, turn.role, turn.key}
            self.objects += filter(None, (turn.metadata, turn.tool_calls))

    def hold(self, word: str, is_text: bool) -> bool:
        """Whether a text is a value of a turn, a line of its text, or a part of it that is not there by chance."""
        if word in self._words:
            return True
        is_part, is_inside = is_text or len(word) >= LONG, word in self._text
        if is_inside and is_part:
            return True
        if is_inside or " " in word or "\n" in word:  # Perhaps a line, or a part with other spaces.
            word = " ".join(word.split())
            self._lines = self._lines or {" ".join(line.split()) for line in (self._text, *self._text.splitlines(), "")}
            if word in self._lines or (is_part and word in " ".join(self._text.split())):
                return True
        if self.objects and not self._values:
            self._values = {" ".join(str(leaf).split()) for leaf in _leaves(self.objects)}
        return word in self._values


def _leaves(value: Any) -> Iterator[Any]:
    for inner in value.values() if isinstance(value, dict) else value:
        if isinstance(inner, dict | list | tuple):
            yield from _leaves(inner)
        else:
            yield inner


class _Field(msgspec.Struct):
    path: str = ""
    is_read: bool = False
    is_kind: bool = False
    is_text: bool = False
    below: "dict[str, _Field]" = {}


class Walk:
    """Walks over the values of messages. `read` are fields that are read whatever becomes of them, such as a time."""

    def __init__(self, read: Collection[str] = ()) -> None:
        self._read = read
        self._top = _Field()
        self._kept = 0

    def unread(self, value: Any, turns: Turns | None = None, taken: Container[Any] = ()) -> list[tuple[str, Leaf]]:
        """Return the values that the turns do not hold, each with the reason that counts its field.

        Without turns, what is in `taken` is held.
        """
        found, waiting = list[tuple[str, Leaf]](), [(self._top, value)]
        for at, container in waiting:  # It grows.
            inside = container.items() if isinstance(container, dict) else zip(repeat(None), container)
            for name, inner in inside:
                if inner is None or inner == "":
                    continue
                field = at if name is None else at.below.get(name) or self._below(at, name)
                if field.is_read or (turns is None and inner in taken):
                    continue
                if isinstance(inner, dict | list | tuple):
                    if turns is None or inner not in turns.objects:
                        waiting.append((field, inner))
                elif not field.is_kind and not (
                    isinstance(inner, str) and (inner.isspace() or (turns and turns.hold(inner, field.is_text)))
                ):
                    found.append((FIELD + field.path, inner))
        return found

    def _below(self, at: _Field, name: str) -> _Field:
        path = f"{at.path}.{name}" if at.path else str(name)
        made = _Field(
            path,
            is_read=path in self._read,
            is_kind=may_tell_role(path) or name in _KINDS,
            is_text=at.is_text or path in _TEXTS,
        )
        if self._kept < FIELDS_KEPT_MAX:  # Names may be without end.
            self._kept += 1
            at.below[name] = made
        return made


EVERYTHING: Final = Walk()


_THOUGHT: Final = frozenset(("thought", "isthought"))
_WHOLE: Final = DEFAULT_FIELDS.keys() - {"text", "tool_calls", "metadata"}
"""Parts of a turn whose fields are read whole, although the turn may have them in another form."""

Refuse = Callable[[int, InvalidInput | str], None]
"""Takes the line of a message that cannot be a turn, and why."""


class MessageReader:
    """Reads the messages of one file."""

    def __init__(self, maker: TurnMaker, form: Format, fields: FieldMap = DEFAULT_MAP) -> None:
        self._maker = maker
        self._form = form
        self._fields = fields
        self._stem = stem_of(maker.path)
        self.lookup = Lookup(fields, form.fields)
        self._around: dict[str, Any] = {}
        self._shapes: dict[tuple[str, ...], tuple[list[str], Walk]] = {}

    def turns(self, messages: Iterable[Message], refuse: Refuse) -> Iterator[ImportedTurn]:
        """Yield the turns of messages. One that cannot be a turn goes to `refuse` and does not hide the others."""
        for message in messages:
            try:
                turn = self.turn(message)
            except InvalidInput as error:
                refuse(message.line, error if message.where.startswith("line") else f"{message.where}: {error}")
            else:
                if turn is not None:
                    yield turn

    def turn(self, message: Message) -> ImportedTurn | None:
        """Return the turn of a message, None if nothing was said: the `left_out` of the maker counts why.

        Raises `InvalidInput`.
        """
        content = message.content
        if content is None:
            self._maker.left_out[EMPTY] += 1
            return None
        if not isinstance(content, dict):
            raise InvalidInput("message", f"expected an object, got {type(content).__name__}")
        if not self._form.fields and "text" not in self._fields:
            content = unwrapped(content)
        fields = {**message.of.shared, **content} if message.of.shared else content
        thoughts, walk = self._shape(fields)
        turn, why = None, list[str]()
        try:
            if any(content[name] is True for name in thoughts):
                raise LeftOut(NOT_SAID)
            turn = self._turn(message, fields if self._form.said is None else self._form.said(fields))
        except LeftOut as left_out:
            why = list(left_out.args)
        said = content.get("content") or content.get("parts")
        if said and not isinstance(said, str):
            with suppress(InvalidInput):
                parts = list(left_out_of(said))
                why = parts[:1] if why == [EMPTY] and parts else why or parts
        count(self._maker.left_out, self._reasons(why, message, walk, turn))
        return turn

    def _shape(self, fields: dict[str, Any]) -> tuple[list[str], Walk]:
        """Return which fields of such messages say that it is a thought, and what finds the values that are unread."""
        shape = tuple(fields)
        if shape not in self._shapes:
            plan = self.lookup.plan(fields)
            whole = _WHOLE if self._form.said is not None else _WHOLE | {"metadata"}
            read = {field for part in whole for field in plan.get(part, ())}
            read |= {*self._form.links, *(name.removeprefix(OF) for name in read)}
            known = [name for name in fields if folded(name) in _THOUGHT], Walk(read)
            if len(self._shapes) >= PLANS_MAX:
                return known
            self._shapes[shape] = known
        return self._shapes[shape]

    def _reasons(self, why: list[str], message: Message, walk: Walk, turn: ImportedTurn | None) -> Iterable[str]:
        """Return why something was left out, and the fields that are not in the turn.

        A message with words under another name is not called empty.
        """
        taken = () if turn is None else (turn.text, turn.metadata, turn.tool_calls)
        is_plain = turn is not None and self._form.said is None and turn.text in message.content.values()
        turns = None if is_plain else Turns(() if turn is None else (turn,))
        found = walk.unread(message.content, turns, taken)
        if turn is not None and message.of.around and message.of.around is not self._around:
            self._around = message.of.around
            found += walk.unread(self._around, turns or Turns((turn,)))
        if why == [EMPTY]:
            words = {reason.removeprefix(FIELD).rpartition(".")[2] for reason, leaf in found if isinstance(leaf, str)}
            why = [] if "text" in usual_names(words) else why
        elif turn is None:
            return why
        return (*why, *{reason for reason, _ in found})

    def _turn(self, message: Message, fields: dict[str, Any]) -> ImportedTurn:
        found = self.lookup.found(fields)
        calls, metadata = _tool_calls(found.get("tool_calls", [])), self._metadata(found.get("metadata", []))
        content = found.get("text", [])
        role: object = None
        texts = [value for _, value in content if isinstance(value, str)]
        text = " ".join(value for value in texts if not value.isspace())
        if not text or len(texts) < len(content):
            own = {} if self._form.fields else fields  # With what was spoken or refused beside the text.
            said = said_in({**own, "role": Role.USER, "content": _parts(content), "tool_calls": calls or None})
            text, calls, metadata = said.text, said.tool_calls, metadata | said.metadata
            role = Role.TOOL if said.role is Role.TOOL else None  # It has nothing but results of tools.
        if not text and not calls:
            if self.lookup.plan(fields).get("text"):
                raise LeftOut(EMPTY)
            named = self._fields.get("text")
            missing = f"no field {' or '.join(map(repr, named))}" if named else "no field with a usual name for a text"
            raise _asked("text", missing, fields)
        speaker = _joined(found.get("speaker"))
        if role is None:
            role, speaker = self._role(_joined(found.get("role")), speaker, fields)
        return self._maker.turn(
            message.line,
            message.where,
            session=_joined(found.get("session"), "/") or message.of.session or self._stem,
            session_title=_joined(found.get("session_title")),
            scope=_joined(found.get("scope"), "/") or "",
            agent=_joined(found.get("agent")),
            role=role,
            speaker=speaker,
            text=text,
            key=_joined(found.get("key"), "/"),
            time=_time(found.get("time")),
            tool_calls=calls,
            metadata=metadata,
        )

    def _metadata(self, found: Found) -> dict[str, Any]:
        """Return the content of objects, and fields that `--field` names under their names."""
        metadata: dict[str, Any] = {}
        for name, value in found:
            if not isinstance(value, dict) and "metadata" not in self._fields:
                raise InvalidInput("metadata", f"expected an object in {name!r}, got {type(value).__name__}")
            metadata.update(value if isinstance(value, dict) else {name: value})
        return metadata

    def _role(self, word: str | None, speaker: str | None, fields: dict[str, Any]) -> tuple[object, str | None]:
        """Return role and speaker: from the field, `--field role=user`, `type`, a flag, or the name of the speaker.

        Any other speaker is a user. Raises `InvalidInput` if nothing tells.
        """
        if word is not None:
            return word, speaker
        named = self._fields.get("role")
        role = role_of(named[0]) if named else role_beside(fields)
        if role is None and speaker is not None:
            role = role_of(speaker)
            if role is None and names_model(speaker):
                raise _asked("role", f"{quoted(speaker)} is a model, and nothing says who speaks", fields)
            return (Role.USER, speaker) if role is None else (role, None)
        role = role or self._form.role
        if role is None:
            raise _asked("role", "nothing says who speaks", fields, ", or say --field role=user if all is a user's")
        return role, speaker


def _asked(target: str, why: str, fields: Iterable[str], more: str = "") -> InvalidInput:
    name = f"name the right one with --field {target}=NAME{more}"
    return InvalidInput(target, f"{why}; the fields are {shown_fields(fields)}; {name}")


def shown_fields(fields: Iterable[str]) -> str:
    """Return names of fields for a message, at most twelve."""
    names = list(fields)
    shown = ", ".join(map(repr, names[:12])) or "none"
    return f"{shown} and {len(names) - 12} more" if len(names) > 12 else shown


def _joined(found: Found | None, glue: str = " ") -> str | None:
    """Return the fields of a target joined to one text, None if there are none. Raises `InvalidInput`."""
    if not found:
        return None
    if len(found) == 1 and not isinstance(found[0][1], list):
        return text_or_none(*found[0])
    parts = [(name, part) for name, value in found for part in (value if isinstance(value, list) else [value])]
    return glue.join(text_or_none(name, part) or "" for name, part in parts)


def _parts(found: Found) -> list[Any]:
    for name, value in found:
        if value and not isinstance(value, str | list):
            raise InvalidInput("text", f"expected text in {name!r}, got {type(value).__name__}: {quoted(value)}")
    return [part for _, value in found for part in (value if isinstance(value, list) else [value]) if part]


def _time(found: Found | None) -> object:
    return found[0][1] if found and len(found) == 1 else _joined(found)


def _tool_calls(found: Found) -> list[Any]:
    calls: list[Any] = []
    for name, value in found:
        if not isinstance(value, list):
            raise InvalidInput("tool_calls", f"expected a list in {name!r}, got {type(value).__name__}")
        calls += value
    return calls
