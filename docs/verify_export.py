"""Verify the export of a mnemolog log: python verify_export.py [FILE] [POSITION:DIGEST] [--certificate CERTIFICATE].

Needs Python alone. Every line must follow from the one before it, up to the last; with a head that was noted elsewhere
the log must also be the one that is remembered. The certificate of an erasure is derived from the log again, and must
be the same; what no log can prove is printed as stated only. The files in a person's file must be those that its
manifest names. docs/format.md says how digests are made. Without FILE it reads standard input.
Exit status: 0 sound, 3 not, 2 nothing to verify.
"""

import base64
import bisect
import datetime
import functools
import hashlib
import json
import struct
import sys
import zipfile
from pathlib import Path

MSGPACK = {0xC4: ("BHI", bytes), 0xCA: ("fdBHIQbhiq", None), 0xD9: ("BHI", str), 0xDC: ("HI", list), 0xDE: ("HI", dict)}
MSGPACK = {first + at: (f">{one}", made) for first, (forms, made) in MSGPACK.items() for at, one in enumerate(forms)}
"""By the first byte of a value: the form of the number that follows, and what has this size. None: it is the value."""


class NotSound(Exception):
    """What does not fit, and where."""


def verify(lines, expected=(), document=None):
    """Return (events, head) of a sound export; raise NotSound, naming the line, for any other.

    A document about the log is given the header with each event. `check` compares it with what they say.
    """
    number = 1
    try:
        header = json.loads(next(lines, b"null"))
        if (header["line"], header["format"], header["version"]) != ("header", "mnemolog-export", 1):
            raise NotSound("line 1: not an export of version 1")
        identity = struct.pack(">qq", header["log_format"], header["created_at"]) + header["log_id"].encode()
        first = header["after"]
        digest = header["digest"]
        versions = {}
        struct.pack(">q32s", first, bytes.fromhex(digest))  # Or this line is damaged.
        if first == 0 and digest != hashlib.sha256(b"mnemolog/genesis/1\0" + identity).hexdigest():
            raise NotSound("line 1: the identity of the log was changed")
        position, missing = first, set(expected) - {f"{first}:{digest}"}
        for number, text in enumerate(lines, 2):
            row = json.loads(text)
            if row["line"] == "end":
                if (row["events"], row["position"], row["digest"]) != (position - first, position, digest):
                    raise NotSound(f"line {number}: the end does not fit the events before it")
                if next(lines, None) is not None:
                    raise NotSound(f"line {number}: something follows the end")
                if missing:
                    raise NotSound(f"line {number}: a noted head is not in this log: {', '.join(missing)}")
                return position - first, f"{position}:{digest}"
            stream, topic = row["stream"].encode(), row["topic"].encode()
            state = base64.b64decode(row["state"], validate=True)
            key = None if row["key"] is None else row["key"].encode()
            lengths = len(stream), len(topic), len(state), -1 if key is None else len(key)
            numbers = struct.pack(">qqqiiii", row["position"], row["version"], row["recorded_at"], *lengths)
            follows = b"mnemolog/event/1\0" + bytes.fromhex(digest) + numbers + stream + topic + state + (key or b"")
            known = versions.get(stream, row["version"] - 1 if first else 0)
            position, digest, versions[stream] = position + 1, hashlib.sha256(follows).hexdigest(), known + 1
            if (row["line"], row["position"], row["digest"], row["version"]) != ("event", position, digest, known + 1):
                raise NotSound(f"line {number}: event {row['position']} is not what was recorded")
            missing.discard(f"{position}:{digest}")
            if document is not None:
                document.take(header, row, state)
    except (KeyError, IndexError) as error:
        raise NotSound(f"line {number}: it has no field {error}") from error
    except (ValueError, TypeError, AttributeError, RecursionError, struct.error) as error:
        raise NotSound(f"line {number}: it is damaged: {error!r}") from error
    raise NotSound(f"line {number}: cut off, the end is missing")


def unpacked(data, at=0):
    """Return the value in msgpack that begins at a byte, and where it ends."""
    kind, at = data[at], at + 1
    if kind < 0x80 or kind >= 0xE0:
        return kind if kind < 0x80 else kind - 0x100, at
    if kind in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[kind], at
    if kind < 0xC0:
        size, made = (kind & 0x1F, str) if kind >= 0xA0 else (kind & 0x0F, list if kind >= 0x90 else dict)
    else:
        form, made = MSGPACK[kind]
        (size,), at = struct.unpack_from(form, data, at), at + struct.calcsize(form)
    if made is None:
        return size, at
    if made in (str, bytes):
        return str(data[at : at + size], "utf-8") if made is str else data[at : at + size], at + size
    parts = []
    for _ in range(size * (2 if made is dict else 1)):
        part, at = unpacked(data, at)
        parts.append(part)
    return parts if made is list else dict(zip(parts[::2], parts[1::2], strict=True)), at


class Certificate:
    """The certificate of an erasure, and what the log says of the request that it names."""

    def __init__(self, given):
        """Keep the certificate, which `check` compares with the log."""
        self.given = given
        self.targets = {}
        self.found = []
        self.stages = []
        self.made = None
        self.head = None  # Of the event before; no log begins with a request.
        for target in given["asked"]:
            self.targets.setdefault(target["stream"], []).append(target)

    def take(self, header, row, state):
        """Take an event: one of those that the certificate names, the request, or a record of its end."""
        if header["after"] != 0:
            raise ValueError("a certificate is checked with the export of a whole log")
        before, self.head, topic = self.head, {name: row[name] for name in ("position", "digest")}, row["topic"]
        for target in self.targets.get(row["stream"], ()):
            at = bisect.bisect(target["versions"], row["version"], key=lambda ends: ends[0])
            if at and row["version"] <= target["versions"][at - 1][1] and target["counts"].get(topic):
                self.found.append(row["position"])
        if row["stream"] != "forgetting":
            return
        (event, end), named = unpacked(state), self.given["request"]
        if end != len(state):
            raise ValueError("its state is not one value")
        if topic == "forget.requested.v1" and event["id"] == named:
            at = datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=row["recorded_at"])
            self.made = {"format": "mnemolog-certificate", "version": 1, "log_id": header["log_id"], "request": named}
            event = {"reason": "", "actor": "", "scopes": [], "facts_kept": 0, "despite_minimum": ""} | event
            names = ("reason", "actor", "scopes", "facts_kept", "despite_minimum")
            self.made |= {name: event[name] for name in names}
            self.made |= {"requested_at": f"{at.isoformat()}Z", "before": before, "requested": self.head}
            names = ("stream", "versions", "series", "counts")
            self.made["asked"] = [{name: ({"series": 0} | item)[name] for name in names} for item in event["targets"]]
            self.stages = [(None, self.head, False)]
        elif topic == "content.forgotten.v1" and event["request"] == named:
            self.stages.append((self.head, self.head, False))
        elif topic == "forget.completed.v1" and named in event["requests"] and not self.stages[-1][2]:
            self.stages.append((self.stages[-1][0], self.head, True))

    def differing(self, erased, after, complete):
        """Return the fields that are not those of a certificate made when the request had come so far."""
        until = (self.made["requested"] if erased is None else self.stages[1][0])["position"]
        found = {position for position in self.found if position < until}
        ends = (sorted(at for at in found if at + step not in found) for step in (-1, 1))
        events = sum(sum(target["counts"].values()) for target in self.made["asked"])
        says = self.given["statements"] | {"keys_destroyed": 0 if erased is None else events, "complete": complete}
        derived = self.made | {"erased": erased, "after": after, "statements": says, "remains": self.given["remains"]}
        derived["positions"] = [list(both) for both in zip(*ends, strict=True)][:1_000]  # It has no more.
        text = functools.partial(json.dumps, sort_keys=True)  # So that 1 is neither 1.0 nor true.
        return [
            name for name, value in derived.items() if name not in self.given or text(self.given[name]) != text(value)
        ]

    def check(self):
        """Yield what is proved and what is not, in words; raise NotSound where the log says something else."""
        differing = [self.differing(*stage) for stage in self.stages] or [["request"]]
        if wrong := min(differing, key=len):
            raise NotSound(f"the log says something else than the certificate: {', '.join(wrong)}")
        erased, _, complete = self.stages[differing.index([])]
        state = "not carried out yet" if erased is None else "completed" if complete else "carried out, not completed"
        state += "; the log has gone on: ask for the certificate again" if differing[-1] else ""
        yield f"the certificate's request is at position {self.made['requested']['position']}, {state}"
        stated = self.given.keys() - self.made.keys() - {"erased", "after", "positions"}
        yield f"Stated only, and proved by no export: {', '.join(sorted(stated))}"


def once(pairs):
    """Return an object in which no name stands twice."""
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a name stands twice in an object")
    return dict(pairs)


def verify_person(path, expected=()):
    """Return what a person's file is of; raise NotSound if a file in it is not the one that its manifest names."""
    with zipfile.ZipFile(path) as archive:
        manifest = json.loads(archive.read("manifest.json"), object_pairs_hook=once)
        files = dict(manifest["files"])
        for name in set(archive.namelist()) - {"manifest.json"}:
            with archive.open(name) as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != files.pop(name, None):
                    raise NotSound(f"{name} is not the file that manifest.json names")
    if files or (expected and expected != [manifest["head"]]):
        raise NotSound("a file of the manifest is missing, or it is of another head than the noted one")
    of = f"{', '.join(manifest['scopes'])}, log {manifest['log_id']}, head {manifest['head']}"
    return f"{len(manifest['files'])} files of {of}"


def main(arguments):
    """Print what was found and return the exit status."""
    at = arguments.index("--certificate") if "--certificate" in arguments else len(arguments)
    rest = arguments[:at] + arguments[at + 2 :]
    heads = [text for text in rest if text.partition(":")[0].isdecimal() and ":" in text]
    files = [text for text in rest if text not in heads]
    document = None
    try:
        if files and zipfile.is_zipfile(files[0]):
            return print("sound:", verify_person(files[0], heads[:1])) or 0
        if at < len(arguments):
            document = Certificate(json.loads(Path(arguments[at + 1]).read_bytes(), object_pairs_hook=once))
        with Path(files[0]).open("rb") if files else sys.stdin.buffer as source:
            if not source.peek(1):
                return print("nothing to verify: the file is empty", file=sys.stderr) or 2
            found = "sound: {} events, head {}".format(*verify(source, heads[:1], document))
        print(found, *(document.check() if document else ()), sep="\n")
    except (OSError, IndexError) as error:
        return print("nothing to verify:", error, file=sys.stderr) or 2
    except NotSound as error:
        return print("NOT SOUND:", error) or 3
    except (ValueError, KeyError, TypeError, AttributeError, zipfile.BadZipFile) as error:
        return print("nothing to verify: not a certificate or a person's file:", repr(error), file=sys.stderr) or 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
