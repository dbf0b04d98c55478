"""The errors and warnings of mnemolog; `help(mnemolog.errors)` has their tree. Types: `errors.pyi`."""

from mnemolog.domain import errors as _errors

__doc__ = _errors.__doc__
__all__ = [name for name, kind in vars(_errors).items() if getattr(kind, "__module__", None) == __name__]
globals().update({name: getattr(_errors, name) for name in __all__})


def __dir__() -> list[str]:
    return sorted(__all__)
