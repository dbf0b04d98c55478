"""What is said where an adapter's extra is not installed."""

from __future__ import annotations

from importlib.util import find_spec


def require_extra(extra: str, module: str) -> None:
    """Raise `ImportError`, naming the extra to install, unless `module` can be imported."""
    try:
        found = find_spec(module)
    except ModuleNotFoundError:  # Its parent is missing.
        found = None
    if found is None:
        raise ImportError(
            f"mnemolog.adapters.{extra.replace('-', '_')} needs {module!r}: pip install 'mnemolog[{extra}]'",
            name=module,
        )
