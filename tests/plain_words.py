"""Plain English: `make lint` looks for phrases that read as translated, in docs, docstrings and comments.

Messages, and reports that a command writes, are left alone. A phrase that is right somewhere is not for this list.
"""

import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PLAIN: Final = {
    "whoever": "a caller who, a person who",
    "nobody": "no caller, no one, or say what cannot be done",
    "somebody": "a user, a person, another caller",
    "goes? along": "depends on it",
    "goes on": "continues",
    "by itself": "alone, automatically",
    "of ours": "our own",
    "made anew": "rebuilt",
    "set aside": "quarantined",
    "for ever": "without end",
    "asked of": "of, for a call on",
    "that is none": "another one, not one",
    "told (?:by|from|of)": "known by, read from",
    "(?:is|are) told": "gets, is notified",
    "to the head": "up to date",
    "behind position": "after position",
}
"""Phrases, and what to write instead."""
PRODUCT: Final = ("api", "domain", "infra", "projections", "cli", "server", "adapters")
_PHRASES: Final = [(re.compile(rf"\b{phrase}\b", re.IGNORECASE), plain) for phrase, plain in PLAIN.items()]


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a page, or of the docstrings and comments of a module, with their numbers."""
    if path.suffix == ".md":
        yield from enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        return
    is_statement = True
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and is_statement):
                yield from enumerate(token.string.splitlines(), start=token.start[0])
            if token.type not in (tokenize.COMMENT, tokenize.NL):
                is_statement = token.type in (tokenize.ENCODING, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)


def main() -> None:
    """Print each phrase with its place, and what to write instead. Exits with 1 if there is one."""
    root = Path(__file__).parents[1]
    pages = [page for page in root.glob("docs/**/*.md") if "reports" not in page.parts]
    modules = [module for folder in PRODUCT for module in (root / folder).rglob("*.py")]
    found = [
        f"{path.relative_to(root)}:{number}: {hit[0]!r}: write {plain!r}"
        for path in sorted([root / "README.md", root / "CONTRIBUTING.md", *pages, *modules])
        for number, line in prose(path)
        for phrase, plain in _PHRASES
        if (hit := phrase.search(line))
    ]
    print(*found, sep="\n")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
