"""The version of the running mnemolog."""

from importlib.metadata import PackageNotFoundError, version


def this_version() -> str:
    """Return the version of the installed package, `unknown` where it runs from a checkout."""
    try:
        return version("mnemolog")
    except PackageNotFoundError:
        return "unknown"
