"""Warnings that name the line outside of mnemolog which made the call."""

import sys
import warnings

PACKAGE = __name__.partition(".")[0]


def warn(warning: Warning) -> None:
    """Give a warning for the nearest line of the call stack that is not in this package."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == PACKAGE:
        level, frame = level + 1, frame.f_back
    warnings.warn(warning, stacklevel=level)
