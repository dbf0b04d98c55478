"""Secrets in content: how they are recognised, and how they are replaced before an event is appended.

Each kind of secret begins with letters that its issuer chose. A text is searched for these, and where they are, the
pattern of that kind is matched. Its parts are bounded or give nothing back, so the time is linear in the length.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from mnemolog.domain import events
from mnemolog.domain.encoding import UNDECODABLE, to_json
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.events import Event, RecordedEvent
from mnemolog.domain.items import ItemPut
from mnemolog.domain.stream_fold import Past
from mnemolog.domain.threads import Blob, pack, unpack

E = TypeVar("E", bound=Event)
S = TypeVar("S", bound=msgspec.Struct)
Redact = Callable[[str], str]
"""Returns a text without what must not be recorded. The same text gives the same answer."""

REDACTION_STREAM: Final = "redaction"
"""The stream of the setting. Such events in other streams are ignored."""
MARKER: Final = re.compile(r"\[REDACTED:([a-z0-9][a-z0-9-]{0,39})\]")
_DECODER: Final = msgspec.json.Decoder()

_WORD: Final = "[A-Za-z0-9]"
_URL: Final = "[A-Za-z0-9_-]"
_TOKEN: Final = "[A-Za-z0-9._~+/=-]"
_END: Final = f"(?!{_WORD})"
_KEY: Final = r"(?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----"
_CUT_OFF: Final = r"(?:(?:\s|\\[nr])*+[A-Za-z0-9+/=]{32,}+)++"
_IS: Final = r"""["']?\s{0,8}[:=]\s{0,8}["']?"""
_PASSWORD: Final = r"""(?P<secret>(?!\[REDACTED:|[$<{%*])[^\s/?#"'<>]{1,256})"""

KINDS: Final = (
    ("private-key", "-----BEGIN", rf" {_KEY}(?:(?:[^-]|-(?!----))*+-----END {_KEY}|{_CUT_OFF})"),
    ("aws-access-key", "AKIA ASIA ABIA ACCA", f"[A-Z2-7]{{16}}{_END}"),
    ("aws-secret-key", "access_key AccessKey ACCESS_KEY", rf"{_IS}(?P<secret>[A-Za-z0-9/+]{{40}}){_END}"),
    ("github", "ghp_ gho_ ghu_ ghs_ ghr_", f"{_WORD}{{36,255}}"),
    ("github", "github_pat_", "[A-Za-z0-9_]{22,255}"),
    ("gitlab", "glpat- gldt- glrt- glcbt- glptt- glft- glsoat- glagent-", f"{_URL}{{20,255}}"),
    ("slack", "xoxa- xoxb- xoxe- xoxo- xoxp- xoxr- xoxs- xapp-", "[A-Za-z0-9-]{10,255}"),
    ("slack", "hooks.slack.com/services/", f"(?P<secret>T{_WORD}{{6,12}}/B{_WORD}{{6,12}}/{_WORD}{{20,32}})"),
    ("stripe", "sk_live_ sk_test_ rk_live_ rk_test_ whsec_", f"{_WORD}{{16,255}}"),
    ("anthropic", "sk-ant-", f"[a-z]{{3,8}}[0-9]{{2}}-{_URL}{{20,255}}"),
    ("openai", "sk-proj- sk-svcacct- sk-admin-", f"{_URL}{{20,255}}"),
    ("openai", "sk-", f"{_WORD}{{32,200}}"),
    ("google", "AIza", f"{_URL}{{35}}{_END}"),
    ("google", "GOCSPX- ya29.", f"{_URL}{{28,1024}}"),
    ("npm", "npm_", f"{_WORD}{{36}}{_END}"),
    ("pypi", "pypi-AgE", f"{_URL}{{50,1024}}"),
    ("hugging-face", "hf_", f"[A-Za-z]{{34}}{_END}"),
    ("sendgrid", "SG.", rf"{_URL}{{22}}\.{_URL}{{43}}"),
    ("twilio", "SK", f"[0-9a-f]{{32}}{_END}"),
    ("telegram", ":AA", f"(?<=[0-9]{{8}}:AA)(?P<secret>{_URL}{{33}})(?!{_URL})"),
    ("digitalocean", "dop_v1_ doo_v1_ dor_v1_", f"[0-9a-f]{{64}}{_END}"),
    ("shopify", "shpat_ shpca_ shppa_ shpss_", f"[0-9A-Fa-f]{{32}}{_END}"),
    ("vault", "hvs.", f"{_URL}{{24,255}}"),
    ("age", "AGE-SECRET-KEY-1", "[0-9A-Z]{58}"),
    ("mnemolog", "mnemolog_", f"[0-9a-f]{{12}}_{_URL}{{43}}"),
    ("jwt", "eyJ", rf"(?<![_-]eyJ){_URL}{{10,}}+\.eyJ{_URL}{{10,}}+\.{_URL}{{16,}}+"),
    ("url-password", "://", rf"""[^\s/?#@:"'<>\[\]{{}}]{{0,128}}:{_PASSWORD}@(?=[A-Za-z0-9\[])"""),
    ("authorization", "Bearer bearer BEARER", rf" {{1,8}}(?=[^\s0-9]{{0,200}}[0-9])(?P<secret>{_TOKEN}{{20,8192}})"),
    ("authorization", "uthorization UTHORIZATION", rf"{_IS}{_WORD}{{3,9}} {{1,8}}(?P<secret>{_TOKEN}{{8,8192}})"),
)
"""A kind of secret, the texts that it begins with, and the pattern of the rest.

The secret is the group of that name; without one it is the whole, and begins where a word begins.
"""
_BY_TEXT: Final = {text: (kind, re.compile(rest)) for kind, texts, rest in KINDS for text in texts.split()}
_TEXTS: Final = re.compile(
    "|".join(
        f"{re.escape(first)}(?:{'|'.join(re.escape(text[1:]) for text in texts)})"
        for first, texts in groupby(sorted(_BY_TEXT, reverse=True), key=itemgetter(0))  # Of two, the longer one first.
    )
)
_BEGINS: Final = re.compile(rf"(?s)(?<!{_WORD})|(?<=\\[nrt])|(?<=%[0-9A-Fa-f][0-9A-Fa-f])|(?<=[\xd9\x8c].)|(?<=\xda..)")
"""Where a word begins: also after an escaped line break, a percent-encoded character, and after the length that msgpack
and pickle write before a text."""
_PRIVATE: Final = re.compile(r"(?is)<private>.*?</private>(?:(?:(?!<private>).)*?</private>)*")
_PRIVATE_ENDS: Final = ("</private>", "</Private>", "</PRIVATE>")
"""What stands between these tags is of the kind `private`; tags may stand in tags."""


class Found(NamedTuple):
    """A secret in a text: where it begins and ends, and its kind."""

    begin: int
    end: int
    kind: str


def secrets_in(text: str) -> list[Found]:
    """Return the secrets in a text, in order; of those that begin at one place, the longer one first."""
    found = list[Found]()
    for begin in _TEXTS.finditer(text):
        kind, rest = _BY_TEXT[begin[0]]
        if not rest.groups and _BEGINS.match(text, begin.start()) is None:
            continue
        if (match := rest.match(text, begin.end())) is not None:
            found.append(Found(*(match.span("secret") if rest.groups else (begin.start(), match.end())), kind))
    if (end := max(map(text.rfind, _PRIVATE_ENDS)) + len("</private>")) > len("<private>"):  # Each begin has an end.
        found += (Found(*match.span(), "private") for match in _PRIVATE.finditer(text, 0, end))
    return sorted(found, key=lambda item: (item.begin, -item.end))


CONTENT: Final = {
    *("title", "reason", "text", "speaker", "tool_calls", "metadata", "value", "values", "description", "status"),
    *("name", "query", "topic_searched", "speakers", "weights", "recall", "of", "by"),
}
"""Fields of events that are content: secrets there are replaced. Blobs of threads are redacted before packing."""
ASKED: Final = {"scope", "scopes", "session", "sessions", "beside"}
"""Fields of receipts that say what was asked: content, too."""
NAMES: Final[dict[type[Event], tuple[str, ...]]] = {
    events.SessionStarted: ("agent", "scope"),
    events.ValueSet: ("key",),
    events.FactAsserted: ("key", "maker"),
    ItemPut: ("key",),
}
"""The fields that give something a name: an event with a secret there is refused, for content is found by its name."""
_RECEIPTS: Final = (events.RecallServed, events.ContextServed)
_REPLACED: Final = {
    kind: [name for name in kind.__struct_fields__ if name in CONTENT or (kind in _RECEIPTS and name in ASKED)]
    for kind in events.EVENT_TYPES.values()
}


class Redaction:
    """Replaces the secrets of one event, counts them by kind, and has what it `found` with its kind.

    `function` replaces what else a caller wants. In a store that replaces none, it is not `on`, and changes nothing.
    """

    def __init__(self, function: Redact | None = None, *, on: bool = True) -> None:
        self.on, self._function = on, function
        self.counts: dict[str, int] = {}
        self.found: dict[str, str] = {}

    def event(self, event: E) -> E:
        """Return an event without secrets, with their number by kind. Raises `InvalidInput` for one in a name."""
        if not self.on:
            return event
        for name in ("actor", *NAMES.get(type(event), ())):
            require_none(name, getattr(event, name))
        changed = self.fields(event, *_REPLACED.get(type(event), ()))
        if isinstance(event, events.TurnRecorded) and isinstance(changed, events.TurnRecorded) and event.original:
            changed = msgspec.structs.replace(changed, original=self._original(event, event.original, changed.text))
        counts = self.counts or event.redacted  # A thread was counted as it was packed.
        return msgspec.structs.replace(changed, redacted=counts) if counts else changed

    def fields(self, struct: S, *names: str) -> S:
        """Return a struct without secrets in these fields; the same object if they hold none."""
        changed = {name: value for name in names if (value := self.value(old := getattr(struct, name))) is not old}
        return msgspec.structs.replace(struct, **changed) if changed else struct

    def value(self, value: Any) -> Any:
        """Return a JSON value without secrets, keys of objects included; the same object if it holds none."""
        match value:
            case str():
                return self.text(value)
            case list():
                items = [self.value(item) for item in value]
                return value if items == value else items
            case dict():
                changed = dict[str, Any]()
                for key, item in value.items():
                    named = self.text(key)
                    while named in changed:
                        named += "'"
                    changed[named] = self.text(item, of=key) if isinstance(item, str) else self.value(item)
                return value if changed == value else changed
            case Event():
                return self.fields(value, *_REPLACED[type(value)])
            case _:
                return value

    def text(self, text: str, *, of: str = "") -> str:
        """Return a text without secrets. With `of` it is the value of that key, which may tell what it is."""
        if not self.on:
            return text
        whole = f"{of}: {text}" if of else text
        start = len(whole) - len(text)
        found = [item._replace(begin=max(item.begin, start)) for item in secrets_in(whole) if item.end > start]
        if found:
            text = self._replaced(whole, found)[start:]
        if self._function is not None:
            text = self._function(text)
            if not isinstance(text, str):
                raise InvalidInput("redact", f"expected text from the function, got {type(text).__name__}")
        return self._counted(text)

    def data(self, data: bytes) -> bytes:
        """Return the bytes of a serialiser without secrets.

        JSON is read and written again; in other bytes a secret is replaced by as many, so that lengths stay right.
        The function is applied to JSON only.
        """
        if not self.on:
            return data
        try:
            value = _DECODER.decode(data)
        except UNDECODABLE:
            text = data.decode("latin-1")
            found = secrets_in(text)
            return self._counted(self._replaced(text, found, same_length=True)).encode("latin-1") if found else data
        changed = self.value(value)
        return data if changed is value else to_json(changed)

    def _replaced(self, text: str, found: list[Found], *, same_length: bool = False) -> str:
        """Return a text without secrets. What overlaps with one before it has no mark of its own."""
        parts, done = list[str](), 0
        for begin, end, kind in found:
            self.found.setdefault(text[begin:end], kind)
            if end > done:
                mark, length = f"[REDACTED:{kind}]" if begin >= done else "", end - max(begin, done)
                if same_length:
                    mark = mark.ljust(length, "*") if len(mark) <= length else "*" * length
                parts += text[done:begin], mark
                done = end
        return "".join((*parts, text[done:]))

    def _counted(self, text: str) -> str:
        for kind in MARKER.findall(text) if "[REDACTED:" in text else ():
            self.counts[kind] = self.counts.get(kind, 0) + 1
        return text

    def _original(self, turn: events.TurnRecorded, blob: Blob, text: str) -> Blob:
        """Return the original of a turn without secrets, packed with the text that the turn has now."""
        before = unpack(blob, dictionary=turn.text.encode())
        data = Redaction(self._function).data(before)  # The text has the same secrets: they are counted there.
        return blob if data is before and text is turn.text else pack(blob.kind, data, dictionary=text.encode())


def require_none(field: str, name: str | None) -> None:
    """Raise `InvalidInput` if a name holds a secret. It does not quote it."""
    if name and (found := secrets_in(name)):
        raise InvalidInput(field, f"a name is stored as it is, and this one holds a secret ({found[0].kind})")


def evolve_redaction(on: bool | None, recorded: RecordedEvent, _past: Past[bool]) -> bool | None:
    """Return whether secrets are replaced, after an event of the stream."""
    return recorded.event.on if isinstance(recorded.event, events.RedactionChosen) else on
