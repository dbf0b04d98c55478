"""Verify the export of a mnemolog log: python verify_export.py [FILE] [POSITION:DIGEST] [--certificate CERTIFICATE].

Needs Python alone. Every line must follow from the one before it, up to the last; with a head that was noted elsewhere
the log must also be the one that is remembered. With the certificate of an erasure, its request and the record of its
end must be in the log where it says. docs/format.md says how digests are made. Without FILE it reads standard input.
Exit status: 0 sound, 3 not, 2 nothing to verify.
"""

import base64
import hashlib
import json
import struct
import sys
from pathlib import Path

ENDS = {"requested": "forget.requested.v1", "erased": "content.forgotten.v1"}


class NotSound(Exception):
    """What does not fit, and in which line."""


def verify(lines, expected=(), certificate=None):
    """Return (events, head) of a sound export; raise NotSound, naming the line, for any other."""
    number = 1
    try:
        header = json.loads(next(lines, b"null"))
        if (header["line"], header["format"], header["version"]) != ("header", "mnemolog-export", 1):
            raise NotSound("line 1: not an export of version 1")
        identity = struct.pack(">qq", header["log_format"], header["created_at"]) + header["log_id"].encode()
        first, digest, versions = header["after"], header["digest"], {}
        struct.pack(">q32s", first, bytes.fromhex(digest))  # Or this line is damaged.
        if first == 0 and digest != hashlib.sha256(b"mnemolog/genesis/1\0" + identity).hexdigest():
            raise NotSound("line 1: the identity of the log was changed")
        if certificate is not None and certificate["log_id"] != header["log_id"]:
            raise NotSound("line 1: the certificate is of another log")
        position, missing = first, set(expected) - {f"{first}:{digest}"}
        for number, text in enumerate(lines, 2):
            row = json.loads(text)
            if row["line"] == "end":
                if (row["events"], row["position"], row["digest"]) != (position - first, position, digest):
                    raise NotSound(f"line {number}: the end does not fit the events before it")
                if next(lines, None) is not None or missing:
                    raise NotSound(f"line {number}: something follows the end, or the noted head is not in this log")
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
            if certificate is not None:
                check_certificate(certificate, number, position, row, state)
    except KeyError as error:
        raise NotSound(f"line {number}: it has no field {error}") from error
    except (ValueError, TypeError, AttributeError, RecursionError, struct.error) as error:
        raise NotSound(f"line {number}: it is damaged: {error!r}") from error
    raise NotSound(f"line {number}: cut off, the end is missing")


def check_certificate(certificate, number, position, row, state):
    """Raise NotSound if the certificate names this position for an event that this is not."""
    for end, topic in ENDS.items():
        if certificate[end] is not None and certificate[end]["position"] == position:
            named = [certificate["request"], *(item["stream"] for item in certificate["asked"] if end == "requested")]
            is_it = (row["stream"], row["topic"]) == ("forgetting", topic)
            if not is_it or not all(name.encode() in state for name in named):
                raise NotSound(f"line {number}: event {position} is not what the certificate names as {end}")


def heads_in(certificate):
    """Return the heads that a certificate names. All must be in the log."""
    named = (certificate[name] for name in ("before", "requested", "erased", "after"))
    return [f"{head['position']}:{head['digest']}" for head in named if head is not None]


def main(arguments):
    """Print what was found and return the exit status."""
    at = arguments.index("--certificate") if "--certificate" in arguments else len(arguments)
    rest = arguments[:at] + arguments[at + 2 :]
    heads = [text for text in rest if text.partition(":")[0].isdecimal() and ":" in text]
    files = [text for text in rest if text not in heads]
    try:
        certificate = json.loads(Path(arguments[at + 1]).read_bytes()) if at < len(arguments) else None
        with Path(files[0]).open("rb") if files else sys.stdin.buffer as source:
            if not source.peek(1):
                return print("nothing to verify: the file is empty", file=sys.stderr) or 2
            expected = heads[:1] + (heads_in(certificate) if certificate else [])
            print("sound: {} events, head {}".format(*verify(source, expected, certificate)))
    except (OSError, IndexError) as error:
        return print("nothing to verify:", error, file=sys.stderr) or 2
    except NotSound as error:
        return print("NOT SOUND:", error) or 3
    except (ValueError, KeyError, TypeError) as error:
        return print("nothing to verify: not a certificate:", repr(error), file=sys.stderr) or 2
    if certificate is not None:
        erased = certificate["erased"]
        print("the certificate's request is at position {}, ".format(certificate["requested"]["position"]), end="")
        print("not carried out yet" if erased is None else f"the record of its end at {erased['position']}")
        print("Stated, and proved by no export: that keys are destroyed, and what nodes have confirmed.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
