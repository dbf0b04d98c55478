"""Texts as they are found in tool output, logs and mails: some with a secret, others that only look so.

The files in `tests/unit/secrets/` have one text in a line. If it has a secret, this stands in «», and the line begins
with its kind and a tab. `{github}` is a secret that is made here, so that no scanner takes a file for a leak. `⏎`, `⇥`
and `␛` stand for a line break, a tab and an escape character, and `§` for five hyphens.
"""

import re
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent / "unit/secrets"
SIGNS = str.maketrans({"⏎": "\n", "⇥": "\t", "␛": "\x1b", "§": "-----"})


def letters(count: int, alphabet: str = "aB3xY7") -> str:
    """So many letters: no secret is written out, so that no scanner takes a file for a leak."""
    return (alphabet * count)[:count]


MADE = {
    "github": "ghp_" + letters(36),
    "gitlab": "glpat-" + letters(20),
    "slack": f"xoxb-{letters(12, '123')}-{letters(24)}",
    "stripe": "sk_live_" + letters(24),
    "anthropic": f"sk-ant-api03-{letters(93)}-{letters(6)}",
    "openai": f"sk-proj-{letters(40)}_{letters(20)}",
    "google": "AIza" + letters(35),
    "npm": "npm_" + letters(36),
    "jwt": f"eyJ{letters(17)}.eyJ{letters(30)}.{letters(43)}",
    "awsid": "AKIA" + letters(16, "Q7Z2"),
    "awskey": letters(40, "aB3/xY+7"),
    "basic": "YWRhOmxvdmVsYWNlMTg0Mw==",
    "opaque": letters(40, "aB3-xY_7"),
    "sendgrid": f"SG.{letters(22)}.{letters(43)}",
    "hf": "hf_" + letters(34, "aBxY"),
    "vault": "hvs." + letters(90),
    "line": letters(64, "MIIEpA3xY7+/"),
    "mnemolog": f"mnemolog_{letters(12, '0a1b')}_{letters(43)}",
    "do": "dop_v1_" + letters(64, "0a1b"),
    "shopify": "shpat_" + letters(32, "0a1b"),
    "twilio": "SK" + letters(32, "0a1b"),
    "telegram": letters(33),
    "pypi": "pypi-AgE" + letters(150),
    "age": "AGE-SECRET-KEY-1" + letters(58, "Q7Z2"),
    "azure": letters(86, "aB3/xY+7") + "==",
    "azure32": letters(43, "aB3/xY+7") + "=",
    "zw": "\u200b",
}


class Form(NamedTuple):
    """A text with a secret, the same text as it is to be stored, and the kind of the secret."""

    text: str
    stored: str
    kind: str


def texts(name: str) -> list[str]:
    """The lines of a file, as they are meant."""
    lines = (FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    return [re.sub(r"\{(\w+)\}", lambda made: MADE.get(made[1], made[0]), line.translate(SIGNS)) for line in lines]


def forms(name: str) -> list[Form]:
    """The lines of a file of texts with secrets."""
    found = []
    for kind, text in (line.split("\t", 1) for line in texts(name)):
        stored = re.sub("«.*?»", f"[REDACTED:{kind}]", text, flags=re.DOTALL)
        found.append(Form(re.sub("[«»]", "", text), stored, kind))
    return found
