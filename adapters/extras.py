"""Check that the packages of an extra are installed."""

from importlib.util import find_spec

from mnemolog.domain.errors import ExtraMissing


def require(extra: str, *modules: str) -> None:
    """Raise `ExtraMissing`, naming the extra to install, unless all of these modules can be imported."""
    for module in modules:
        if find_spec(module) is None:
            raise ExtraMissing(extra, module)
