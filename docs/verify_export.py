"""Verify the export of a mnemolog log: python verify_export.py FILE [POSITION:DIGEST]. Needs Python alone.

Every line must follow from the one before it, up to the last; with a head that was noted elsewhere the log must also
be the one that is remembered. docs/format.md says how digests are made. Without FILE it reads standard input.
Exit status: 0 sound, 3 not, 2 nothing to verify.
"""

import base64
import hashlib
import json
import struct
import sys
from pathlib import Path


def verify(lines, expected=None):
    """Return (events, head) of a sound export; raise ValueError, naming the line, for any other."""
    header = json.loads(next(lines, b"null"))
    if (header["line"], header["format"], header["version"]) != ("header", "mnemolog-export", 1):
        raise ValueError("line 1: not an export of version 1")
    identity = struct.pack(">qq", header["log_format"], header["created_at"]) + header["log_id"].encode()
    position, digest, versions, number = header["after"], header["digest"], {}, 1
    if position == 0 and digest != hashlib.sha256(b"mnemolog/genesis/1\0" + identity).hexdigest():
        raise ValueError("line 1: the identity of the log was changed")
    found = expected in (None, f"{position}:{digest}")
    for number, text in enumerate(lines, 2):
        row = json.loads(text)
        if row["line"] == "end":
            if (row["events"], row["position"], row["digest"]) != (position - header["after"], position, digest):
                raise ValueError(f"line {number}: the end does not fit the events before it")
            if next(lines, None) is not None or not found:
                raise ValueError(f"line {number}: something follows the end, or the noted head is not in this log")
            return position - header["after"], f"{position}:{digest}"
        stream, topic = row["stream"].encode(), row["topic"].encode()
        state = base64.b64decode(row["state"], validate=True)
        key = None if row["key"] is None else row["key"].encode()
        lengths = len(stream), len(topic), len(state), -1 if key is None else len(key)
        numbers = struct.pack(">qqqiiii", row["position"], row["version"], row["recorded_at"], *lengths)
        follows = b"mnemolog/event/1\0" + bytes.fromhex(digest) + numbers + stream + topic + state + (key or b"")
        known = versions.get(stream, row["version"] - 1 if header["after"] else 0)
        position, digest, versions[stream] = position + 1, hashlib.sha256(follows).hexdigest(), known + 1
        if (row["line"], row["position"], row["digest"], row["version"]) != ("event", position, digest, known + 1):
            raise ValueError(f"line {number}: event {row['position']} is not what was recorded")
        found = found or expected == f"{position}:{digest}"
    raise ValueError(f"line {number}: cut off, the end is missing")


if __name__ == "__main__":
    heads = [text for text in sys.argv[1:] if text.partition(":")[0].isdecimal() and ":" in text]
    files = [text for text in sys.argv[1:] if text not in heads]
    try:
        with Path(files[0]).open("rb") if files else sys.stdin.buffer as source:
            if not source.peek(1):
                sys.exit(print("nothing to verify: the file is empty", file=sys.stderr) or 2)
            print("sound: {} events, head {}".format(*verify(source, *heads[:1])))
    except OSError as error:
        sys.exit(print("nothing to verify:", error, file=sys.stderr) or 2)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, struct.error) as error:
        sys.exit(print("NOT SOUND:", repr(error)) or 3)
