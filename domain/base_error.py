"""The base of the family of errors, which is drawn in `mnemolog.domain.errors`."""

from __future__ import annotations


class MnemologError(Exception):
    """The base of every error that mnemolog raises on purpose."""

    hint = ""
