"""Fold numbers and ids to one spelling: `1.299,00` to `1299`, `+49 170 1234567` to `1701234567`, `INV-2` to `inv2`.

Only what can be read in one way is folded. `1.299` may be a decimal number, `3/5/2024` has two readings as a date, and
`v2.10` is not `v2.1`: these stay apart. A form has lower-case letters and digits only, so it is one word of the index.
"""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final

DAYS_KEPT: Final = 1_000
BEFORE: Final = 25
"""How many characters before its first digit a number or an id may begin."""
_NEAR_DIGITS: Final = re.compile(rf"[0-9](?:[^0-9]{{0,{BEFORE}}}[0-9])*[^0-9]{{0,{BEFORE}}}")
"""What begins with digits and has no others nearby. Most of a text has none, and need not be read word by word."""
LONG: Final = 6
"""From how many digits on groups of them are one number."""


def folded(text: str) -> Iterator[tuple[str, str]]:
    """Yield the numbers and ids of a text, in lower case, each with its one spelling.

    The two are equal for one word of letters and digits, such as `inv2047`: its parts are words of their own.
    """
    text = text.lower()
    for near in _NEAR_DIGITS.finditer(text):
        for found in _NUMBER.finditer(text, max(near.start() - BEFORE, 0), near.end()):
            if form := _RULES[str(found.lastgroup)][1](found[0]):
                yield found[0], form


@lru_cache(DAYS_KEPT)
def _day(said: str) -> str:
    """Return a day as `20240305`. Some write the month first: then a day above 12 is needed to read it."""
    from dateutil.parser import parse  # Takes long to import, and few texts have a day.

    begins_with_year = said[:4].isdigit()
    try:
        read, other = (parse(said, dayfirst=not begins_with_year), parse(said, dayfirst="." in said[:3]))
    except ValueError:
        return ""
    return f"{read:%Y%m%d}" if read == other else ""


def _clock(said: str) -> str:
    """Return the time of a day of 24 hours. A time such as `6:30` may be one of the evening."""
    numbers = re.findall("[0-9]+", said)
    hour, minute = int(numbers[0]), int(numbers[1]) if len(numbers) > 1 else 0
    if half := re.search(r"[ap](?=\.?m)", said):
        hour = hour % 12 + 12 * (half[0] == "p") if 0 < hour <= 12 else 24
    elif hour <= 12 and said[0] != "0":
        return ""
    return f"{hour}h{minute:02}" if hour < 24 and minute < 60 else ""


def _amount(said: str) -> str:
    cents = re.search("[.,]([0-9]{1,2})$", said)
    whole = _joined(said[: cents.start()] if cents else said)
    return whole if cents is None or cents[1] == "00" else f"{whole}q{cents[1]}"


def _groups(said: str) -> str:
    """Return groups of digits as one number; of a telephone number what is dialled in the place itself."""
    groups = said.removeprefix("v").split(".")
    if len(groups) > 1 and said[0] != "0" and all(group.isdigit() and len(group) <= 3 for group in groups):
        return "q".join(groups)  # A version, or an address of a computer.
    digits = _joined(said.removeprefix("v").replace("(0)", ""))
    if said[0] == "+" or digits.startswith("00"):
        digits = _CALLING_CODE.sub("", digits.removeprefix("00"))
    return digits.lstrip("0") if len(digits) >= LONG else ""


def _joined(said: str) -> str:
    return "".join(re.findall("[0-9a-z]+", said))


_CALLING_CODE: Final = re.compile("^(?:1|7|2[07]|3[0-469]|4[013-9]|5[1-8]|6[0-6]|8[1246]|9[0-58]|[0-9]{3})(?=[0-9]{6})")
"""No calling code begins with another (ITU-T E.164)."""
_DECIMAL: Final = (
    r"(?:[0-9]{1,3}(?:,[0-9]{3}){1,6}(?:\.[0-9]{1,2})?|[0-9]{1,3}(?:\.[0-9]{3}){1,6},[0-9]{1,2}"
    r"|[0-9]{1,3}(?:\.[0-9]{3}){2,6}|[0-9]{1,3}(?:[ '\u2019][0-9]{3}){1,6}(?! [0-9])(?:[.,][0-9]{1,2})?"
    r"|[0-9]{1,12}[.,][0-9]{1,2})"
)
_MONTH: Final = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6}\.?"
_DAY: Final = r"[0-9]{1,2}(?:st|nd|rd|th|\.)?"
_ENDS: Final = r"(?![^\W_]|[.,:'\u2019][0-9])"
_RULES: Final[dict[str, tuple[str, Callable[[str], str]]]] = {
    "day": (
        rf"(?:{_DAY} (?:of )?{_MONTH},? [0-9]{{4}}|{_MONTH} {_DAY},? [0-9]{{4}}"
        r"|[0-9]{4}(?P<of_iso>[-/.])[0-9]{1,2}(?P=of_iso)[0-9]{1,2}"
        r"|[0-9]{1,2}(?P<apart>[-/.])[0-9]{1,2}(?P=apart)[0-9]{4})(?!\w)",
        _day,
    ),
    "clock": (
        r"(?:[0-9]{1,2}(?:[:.][0-9]{2})? ?[ap]\.?m\b\.?|[0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?(?![\w:])"
        r"|[0-9]{1,2}h[0-9]{2}\b)",
        _clock,
    ),
    "percent": (
        rf"(?:{_DECIMAL}|[0-9]{{1,12}}) ?(?:%|(?:percent|per cent|pct)\b)",
        lambda said: f"{_amount(said.rstrip(' %percnt'))}pct",
    ),
    "abroad": (r"(?:\+|00)(?=(?:[ ()./-]{0,3}[0-9]){8})[0-9](?:[ ./-]{0,2}\(?[0-9]{1,14}\)?){1,6}", _groups),
    "account": (r"[a-z]{2}[0-9]{2}(?: [a-z0-9]{4}){2,7}(?: [a-z0-9]{1,3}\b)?", _joined),
    "amount": (rf"v?{_DECIMAL}{_ENDS}", lambda said: _amount(said.removeprefix("v"))),
    "groups": (
        r"v?\(?[0-9]{1,14}\)?(?:[ ./\u2010-\u2013-]{1,2}\(?[0-9]{1,14}\)?(?![^\W_])){1,8}|0[0-9]{5,14}(?!\w)",
        _groups,
    ),
    "id": (r"[a-z0-9]{1,12}(?:[-/_#\u2010-\u2013]{1,2}[a-z0-9]{1,12}(?!\w)){1,6}", _joined),
    "unit": (
        r"(?:[a-z]{2,12}[0-9]{2,12}|[0-9]{1,12}(?!(?:st|nd|rd|th)\b)[a-z]{2,4}|[0-9]{2,12}[a-rt-z])(?!\w)",
        _joined,
    ),
    "hash": (r"(?=[0-9]{0,40}[a-f])(?=[a-f]{0,40}[0-9])[0-9a-f]{8,64}(?!\w)", lambda said: said[:7]),
}
_NUMBER: Final = re.compile(
    r"(?<!\w)(?=[+(]{0,2}+[a-z]{0,12}+[-/_#. \u2010-\u2013]{0,2}+(?:[a-z]{1,6}+[-/_#]++)?[0-9])(?:"
    + "|".join(f"(?P<{name}>{pattern})" for name, (pattern, _) in _RULES.items())
    + ")"
)
