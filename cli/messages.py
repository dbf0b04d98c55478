"""Parsing of command input: standard input, the messages of a transcript."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mnemolog.domain import errors
from mnemolog.infra.runtime.regular_files import open_file


def messages_in(path: Path) -> list[Mapping[str, Any]]:
    """Return the messages of a file; `-` is standard input. Raises `ImportRefused`, naming the line."""
    try:
        text = standard_input("messages") if str(path) == "-" else _text_of(path)
    except OSError as error:
        raise errors.ImportRefused(path, 1, f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise errors.ImportRefused(path, 1, f"is no UTF-8 text: {error}") from error
    if text.lstrip().startswith("["):
        return [_message(path, 1, item) for item in _decoded(path, 1, text)]
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    return [_message(path, number, _decoded(path, number, line)) for number, line in lines]


def _text_of(path: Path) -> str:
    with open_file(path, follow=True) as file:
        return file.read().decode("utf-8-sig")


def standard_input(field: str) -> str:
    """Return all of standard input. Raises `InvalidInput` if it is not UTF-8 text."""
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise errors.InvalidInput(field, f"standard input is no UTF-8 text: {error}") from error


def _decoded(path: Path, line: int, text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise errors.ImportRefused(path, line + error.lineno - 1, f"not JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise errors.ImportRefused(path, line, f"not JSON: {error}") from error


def _message(path: Path, line: int, item: Any) -> Mapping[str, Any]:
    if not isinstance(item, dict):
        raise errors.ImportRefused(path, line, f"expected a JSON object for a message, got {type(item).__name__}")
    return item
