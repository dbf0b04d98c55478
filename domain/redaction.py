"""Secrets in content: how they are recognised, and how they are replaced before an event is appended.

Each kind of secret begins with letters that its issuer chose, or follows a name such as `password`. A text is searched
for these, and where they are, the pattern of that kind is matched. Its parts are bounded or give nothing back, so the
time is linear in the length.
"""

import re
from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec import inspect

from mnemolog.domain import events
from mnemolog.domain.encoding import UNDECODABLE, to_json
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.events import Event, RecordedEvent
from mnemolog.domain.items import ItemDeleted, ItemPut, ItemTouched
from mnemolog.domain.stream_fold import Past
from mnemolog.domain.threads import (
    Blob,
    ThreadCheckpointed,
    ThreadCopied,
    ThreadPruned,
    ThreadWritten,
    pack,
    unpack,
)

E = TypeVar("E", bound=Event)
S = TypeVar("S", bound=msgspec.Struct)
Redact = Callable[[str], str]
"""Returns a text without what must not be recorded. The same text gives the same answer."""

REDACTION_STREAM: Final = "redaction"
"""The stream of the setting. Such events in other streams are ignored."""
MARKER: Final = re.compile(r"\[REDACTED:([a-z0-9][a-z0-9-]{0,39})\]")
_DECODER: Final = msgspec.json.Decoder()


def _written(characters: str) -> str:
    """Return the pattern of one of these characters: as it is, escaped, or encoded as in JSON, URLs, HTML and mails."""
    code = "|".join(f"{ord(character):02x}" for character in characters)
    number = "|".join(f"{ord(character)}" for character in characters)
    encoded = rf"(?i:(?:\\{{1,15}}(?:u00|x)|%(?:25)?|=)(?:{code})|&\#(?:x(?:{code})|{number});)"
    return rf"(?:{encoded}|\\{{0,15}}[{re.escape(characters)}])"


_PARTS: Final = {
    "word": "[A-Za-z0-9]",
    "url": "[A-Za-z0-9_-]",
    "token": "[A-Za-z0-9._~+/=-]",
    "end": "(?!{word})",
    # A colour of a terminal: its escape character as it is, as it is shown or escaped, or lost.
    "colour": r"(?:{escape}(?:\[|[%=]5[bB])[0-9;]{0,20}[A-Za-z]|\[[0-9;]{1,20}m)",
    "escape": r"(?:\x1b|\^\[|\\{1,15}(?:x1[bB]|u001[bB]|033|e)|[%=]1[bB])",
    "slash": _written("/"),
    "quote": f"(?:{_written(chr(34) + chr(39) + chr(96))}|&(?:quot|apos);)",
    "space": rf"(?:[ \t]|{_written(' ')}|{{colour}})",
    "gap": r"(?:\s|\\{1,15}[nrt]|{space})",
    "sign": f"(?:=>|:=|{_written(':=>|')}(?!=(?!2[027]))|&gt;)",
    # What stands between a name and its value, up to the quote before the value.
    "is": r"(?:{value})?{space}{0,4}+{quote}?[)\]]?{space}{0,8}+{sign}{space}{0,8}+",
    "value": "{quote}?{gap}{0,40}+,?{gap}{0,40}+{quote}?[Vv]alue",
    "comma": "{quote}{space}{0,8}+,{space}{0,8}+b?(?={quote})",
    "open": r"(?:\[{space}{0,4}+)?(?:[$@]?{quote})?{colour}?",
    # A private key: its first and last line, what is no line of that form, and lines of one that is cut off.
    "key": "(?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----",
    "inside": "(?:[^-]|-(?!----))",
    "break": r"""(?:{gap}|\\u000[ad]|\\|[=%]0[AD]|<br ?/?>|//(?=\s)|[>|+#*"',:=-]|[0-9]{1,6}(?=[\s:|])){0,60}+""",
    "cutoff": r"(?:{break}[A-Za-z-]{3,20}: [^\n\\]{0,100}){0,4}+(?:{break}[A-Za-z0-9+/=]{32,}+)++",
    # The name and the password of a URL. What ends in a comma may be a port.
    "user": r"""[^\s/?#:"'<>\[\]]{0,128}+:(?=[^\s/?#"'<>@]{1,256}+@){colour}{0,2}""",
    "secret": r"""(?P<secret>(?!\[REDACTED:|[0-9]{1,5}[,;|)])[^\s/?#"'<>\x1b]{1,256})""",
    "login": r"{user}{secret}{colour}{0,2}@(?=[\w\[$%{<\\\x1b])",
    # What follows `Authorization`: the scheme, and characters that are no words joined by hyphens.
    "scheme": "{word}{3,9}{space}{1,8}+(?:token={quote})?",
    "random": r"(?=[^\s0-9]{0,200}[0-9]|(?:\S{0,40}?[a-z][A-Z]){3})(?!{words}(?!{token}))",
    "words": "[A-Za-z]+(?:[_-][A-Za-z]+){1,9}[0-9]?",
    # A password: no path, expression or template. It has a letter, and a digit or a sign.
    "outside": r"\s\"'`<>\\,;&|()\[\]\x1b",
    "letter": r"(?:[^{outside}]|&(?![A-Za-z]\w{0,40}[=;]|\#)|(?(quote)[,;]|(?!)))",
    "template": r"[/.~^@\[]|\$?\{\{|\$\{|![A-Za-z]+\s|[^{outside}\{]{0,60}\}|[A-Za-z+]{2,12}:|{fields}|{variable}",
    "fields": "[^{outside}:]{0,40}:[^{outside}:]{0,40}:",
    "variable": r"\$[A-Z_][A-Z0-9_]*(?![\w!#$%@])",
    "path": r"\$?\w{0,60}(?:\.[A-Za-z_]\w{0,60}){1,8}(?!{letter})",
    "mixed": "[^{outside}0-9]{0,60}+[0-9]|[^{outside}!#$%]{0,60}+[!#$%][^{outside}]",
    "chosen": r"(?!{template}|{path})(?={mixed})(?=[^{outside}A-Za-z]{0,60}+[A-Za-z])(?P<secret>{letter}{6,512}+)",
}
"""Parts of patterns, which may have parts."""


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Return a pattern with its parts. When it is first needed: all of them would take longer than a command."""
    return re.compile(_with_parts(pattern))


def _with_parts(pattern: str) -> str:
    return re.sub(r"\{([a-z]+)\}", lambda part: _with_parts(_PARTS[part[1]]), pattern)


KINDS: Final = (
    (
        "private-key",
        "-----BEGIN",
        " {key}(?:(?={inside}{0,600}?[A-Za-z0-9+/]{16}){inside}*+-?-----END {key}|{cutoff})",
    ),
    ("aws-access-key", "AKIA ASIA ABIA ACCA", "[A-Z2-7]{16}{end}"),
    (
        "aws-secret-key",
        "access_key AccessKey ACCESS_KEY",
        r"(?:{is}|{comma}|\s{1,8}){open}(?P<secret>(?![0-9a-f]{40})[A-Za-z0-9/+]{40}){end}",
    ),
    ("azure", "AccountKey SharedAccessKey", "{is}{open}(?P<secret>[A-Za-z0-9/+]{43}(?:[A-Za-z0-9/+]{43}=)?=)"),
    ("github", "ghp_ gho_ ghu_ ghs_ ghr_", "{word}{36,255}"),
    ("github", "github_pat_", "[A-Za-z0-9_]{22,255}"),
    ("gitlab", "glpat- gldt- glrt- glcbt- glptt- glft- glsoat- glagent-", "{url}{20,255}"),
    ("slack", "xoxa- xoxb- xoxe- xoxo- xoxp- xoxr- xoxs- xapp-", "(?=[A-Za-z-]{0,40}[0-9])[A-Za-z0-9-]{10,255}"),
    (
        "slack",
        "hooks.slack.com",
        "{slash}services{slash}(?P<secret>T{word}{6,12}{slash}B{word}{6,12}{slash}{word}{20,32})",
    ),
    ("stripe", "sk_live_ sk_test_ rk_live_ rk_test_ whsec_", "{word}{16,255}"),
    ("anthropic", "sk-ant-", "[a-z]{3,8}[0-9]{2}-{url}{20,255}"),
    ("openai", "sk-proj- sk-svcacct- sk-admin-", "{url}{20,255}"),
    ("openai", "sk-", "{word}{32,200}"),
    ("google", "AIza", "{url}{35}{end}"),
    ("google", "GOCSPX- ya29.", "{url}{28,1024}"),
    ("npm", "npm_", "{word}{36}{end}"),
    ("pypi", "pypi-AgE", "{url}{50,1024}"),
    ("hugging-face", "hf_", "[A-Za-z]{34}{end}"),
    ("sendgrid", "SG.", r"{url}{22}\.{url}{43}"),
    ("twilio", "SK", "[0-9a-f]{32}{end}"),
    ("telegram", ":AA", "(?<=[0-9]{8}:AA)(?P<secret>{url}{33})(?!{url})"),
    ("digitalocean", "dop_v1_ doo_v1_ dor_v1_", "[0-9a-f]{64}{end}"),
    ("shopify", "shpat_ shpca_ shppa_ shpss_", "[0-9A-Fa-f]{32}{end}"),
    ("vault", "hvs.", "{url}{24,255}"),
    ("age", "AGE-SECRET-KEY-1", "[0-9A-Z]{58}"),
    ("mnemolog", "mnemolog_", "[0-9a-f]{12}_{url}{43}"),
    ("jwt", "eyJ", r"(?<![_-]eyJ){url}{10,}+\.eyJ{url}{10,}+\.{url}{16,}+"),
    ("url-password", ":// :=2F=2F :=2f=2f :%2F%2F :%2f%2f :&#x2F;&#x2F; :&#47;&#47;", "{login}"),
    ("url-password", ":\\", r"\\{0,14}(?:/|u002[fF]){slash}{login}"),
    (
        "url-password",
        "%3A%2F%2F %3a%2f%2f",
        r"(?:[^\s%/&]|%(?!3[aA]|2[fF])){0,128}+%3[aA](?P<secret>(?:[^\s%/&]|%(?!40|2[fF])){1,256}+)%40",
    ),
    (
        "authorization",
        "Bearer bearer BEARER",
        r"{space}{1,8}+(?=[^\s0-9]{0,200}[0-9]){random}(?P<secret>{token}{20,8192})",
    ),
    (
        "authorization",
        "uthorization UTHORIZATION",
        "(?:{is}{gap}{0,8}+|{comma}){open}{scheme}{random}(?P<secret>{token}{8,8192})",
    ),
    (
        "password",
        "password Password PASSWORD passwd Passwd PASSWD pwd Pwd PWD",
        r"{is}(?P<quote>{quote})?{colour}?{chosen}(?(quote)(?={quote})|(?!,\s|[|()\[\]]))",
    ),
)
"""A kind of secret, the texts that it begins with, and the pattern of the rest.

The secret is the group of that name; without one it is the whole, and begins where a word begins.
"""
_COMMON: Final = "kvbwyfpgmucdlhrsnioate"
"""The letters of most texts, the rarest first."""
_BEGINNINGS: Final = [
    (text, min(range(len(text)), key=lambda at: _COMMON.find(text[at])), kind, rest)
    for kind, texts, rest in KINDS
    for text in sorted(texts.split(), reverse=True)
]
"""The texts that a secret begins with, and where each has its rarest character: there it is searched for."""
_ANY: Final = re.compile(
    "|".join(
        f"{re.escape(text[at])}(?<={re.escape(text[: at + 1])}){re.escape(text[at + 1 :])}()"
        for text, at, *_ in _BEGINNINGS
    )
)
_BEGINS: Final = _compiled(
    r"(?s)(?<!{word})|(?<=\\[nrtbfve0])|(?<=%[0-9A-Fa-f][0-9A-Fa-f])|(?<=[\xd9\x8c].)|(?<=\xda..)"
)
"""Where a word begins: also after an escaped line break, a percent-encoded character, and after the length that msgpack
and pickle write before a text."""
_ENCODED: Final = _compiled(r"(?:\\(?:u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2}|[0-7]{3})|=[0-9A-F]{2}|{colour})\Z")
"""A word begins, too, after a character that is encoded, and after a colour: in the 24 characters before it."""
_PLACEHOLDER: Final = re.compile(
    r"(?i)[*x.•…#?_-]+|.{0,40}x{8}.*|your.*|changeme|hidden|redacted|[a-z_-]{0,30}(?:password|passwd|pass|pwd|token)[0-9]?"
    r"|(?-i:\$[A-Z_][A-Z0-9_]*)|\$[0-9]|\$[a-z_]*(?:pass|pw|secret|token|key)[a-z_]*[0-9]?|\$?\{\{?[^{}]*\}?\}|\$\(.*\)"
    r"|<.*>|\[.*\]|#\{.*\}#?|%[a-z]|%\(\w+\)s|%[\w():]+%|__\w+__|:\w+|@\w+@|\*[a-z]+(?:_[a-z0-9]+)+"
    r"|\$(?:2[abxy]?|[156y]|argon2\w*|pbkdf2[\w-]*|scrypt)\$.{20,}"
)
"""What stands for a secret in code, examples and masks, and the hash of a password."""
_PRIVATE: Final = re.compile(r"(?is)<private>.*?</private>(?:(?:(?!<private>).)*?</private>)*")
_PRIVATE_ENDS: Final = ("</private>", "</Private>", "</PRIVATE>")
"""What stands between these tags is of the kind `private`; tags may stand in tags."""


class Found(NamedTuple):
    """A secret in a text: where it begins and ends, and its kind."""

    begin: int
    end: int
    kind: str


def secrets_in(text: str) -> list[Found]:
    """Return the secrets in a text, in order; of those that begin at one place, the longer one first.

    Of two kinds of the same characters, that of the issuer comes before that of the name or URL around them.
    """
    found = list[Found]()
    for mark in _ANY.finditer(text):
        written, _, kind, pattern = _BEGINNINGS[(mark.lastindex or 0) - 1]
        rest, begin = _compiled(pattern), mark.end() - len(written)
        if not (rest.groups or _BEGINS.match(text, begin) or _ENCODED.search(text, max(0, begin - 24), begin)):
            continue
        if (match := rest.match(text, mark.end())) is not None:
            begin, end = match.span("secret") if rest.groups else (begin, match.end())
            if _PLACEHOLDER.fullmatch(text, begin, end) is None:
                found.append(Found(begin, end, kind))
    if "</" in text:  # Up to the last end each begin has an end.
        end = max(map(text.rfind, _PRIVATE_ENDS)) + len("</private>")
        found += (Found(*match.span(), "private") for match in _PRIVATE.finditer(text, 0, end))
    return sorted(found, key=lambda item: (item.begin, -item.end), reverse=True)[::-1]  # The last of equal ones first.


CONTENT: Final[dict[type[Event], tuple[str, ...]]] = {
    events.SessionStarted: ("title", "reason"),
    events.TurnRecorded: ("text", "speaker", "tool_calls", "metadata"),
    events.SessionEnded: ("reason",),
    events.SessionResumed: ("reason",),
    events.ValueSet: ("value",),
    events.TaskChanged: ("description", "status"),
    events.NoteAdded: ("text",),
    events.CheckpointCreated: ("name", "description"),
    events.FactAsserted: ("value",),
    events.FactRetracted: ("reason",),
    events.StandingEnded: ("reason",),
    events.ProposalMade: ("act", "why"),
    events.ProposalDecided: ("reason",),
    events.SourceDistrusted: ("reason",),
    events.SourceTrusted: ("reason",),
    events.SessionSwitched: ("reason",),
    events.RecallServed: (
        *("query", "topic_searched", "scope", "scopes", "session", "asked_in", "beside"),
        *("speakers", "metadata", "weights", "by"),
    ),
    events.ContextServed: ("recall", "of", "sessions", "values"),
    events.RecallJudged: ("by",),
    events.HoldPlaced: ("reason",),
    events.HoldLifted: ("reason",),
    events.LossAccepted: ("reason",),
    events.ForgetRequested: ("reason", "despite_minimum"),
    events.ContentErased: ("copies",),
    ItemPut: ("value",),
    ThreadPruned: ("reason",),
}
"""The fields that are content: secrets there are replaced. What a receipt says was asked is content, too.

Bytes of threads are redacted before they are packed.
"""
REFERS: Final[dict[type[Event], tuple[str, ...]]] = {
    events.SessionStarted: ("parent",),
    events.ValueDeleted: ("key",),
    events.FactAsserted: ("session", "proposed_by"),
    events.ProposalDecided: ("proposed_by",),
    events.SessionSwitched: ("from_", "to"),
    events.RetentionChosen: ("scope", "max_age", "min_age"),
    events.HoldPlaced: ("scope",),
    events.ForgetRequested: ("targets", "scopes"),
    ItemTouched: ("key",),
    ItemDeleted: ("key",),
    ThreadCheckpointed: ("parent", "kept"),
    ThreadWritten: ("checkpoint",),
    ThreadPruned: ("hidden",),
    ThreadCopied: ("source",),
}
"""The fields that name what an earlier event has introduced. What exists can be used, deleted and forgotten."""


@cache
def names_of(kind: type[Event]) -> tuple[str, ...]:
    """Return the fields of an event with names: all that may hold text, by their types, but `CONTENT` and `REFERS`.

    An event with a secret there is refused, for content is found by its name.
    """
    return tuple(
        item.name
        for item in inspect.type_info(kind).fields  # type: ignore[attr-defined]
        if item.name not in ("redacted", *CONTENT.get(kind, ()), *REFERS.get(kind, ()))
        and re.search(r"\b(?:Str|Any)Type\(", repr(item.type))
    )


def _texts_in(value: Any) -> list[str]:
    match value:
        case str():
            return [value] if value else []
        case dict():
            value = [*value, *value.values()]
        case msgspec.Struct():
            value = msgspec.structs.astuple(value)
    parts = [part for part in value if type(part) is not int] if isinstance(value, list | tuple) else []
    return [text for part in parts for text in _texts_in(part)]


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
        changed = self._without(event)
        if isinstance(event, events.TurnRecorded) and isinstance(changed, events.TurnRecorded) and event.original:
            changed = msgspec.structs.replace(changed, original=self._original(event, event.original, changed.text))
        counts = self.counts or event.redacted  # A thread was counted as it was packed.
        return msgspec.structs.replace(changed, redacted=counts) if counts else changed

    def _without(self, event: E) -> E:
        names = [(name, text) for name in names_of(type(event)) for text in _texts_in(getattr(event, name))]
        if names and secrets_in("\n".join(text for _, text in names)):
            for name, text in names:
                require_none(name, text)
        return self.fields(event, *CONTENT.get(type(event), ()))

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
                    of = value.get("name", key) if key == "value" else key
                    changed[named] = self.text(item, of=str(of)) if isinstance(item, str) else self.value(item)
                return value if changed == value else changed
            case Event():
                return self._without(value)
            case msgspec.Struct():
                return self.fields(value, *value.__struct_fields__)
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
            if end > done:
                self.found.setdefault(text[begin:end], kind)
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
