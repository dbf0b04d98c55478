"""The official SDK, imported in half of the time: that is most of what the server takes to start (ADR 20)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec, module_from_spec
from threading import RLock
from types import ModuleType
from typing import Any, TypeVar

import pydantic
from pydantic import BaseModel, ConfigDict, TypeAdapter

Checked = TypeVar("Checked")


class _Package(ModuleType):
    """A package whose `__init__` waits until it is asked for something that is no module of it."""

    _lock, _begun = RLock(), False

    def __getattr__(self, name: str) -> Any:
        with self._lock:
            if not self._begun and (not name.startswith("__") or name == "__all__"):
                self._begun = True
                spec = self.__spec__
                assert spec is not None
                assert spec.loader is not None
                spec.loader.exec_module(self)
            if name in self.__dict__:
                return self.__dict__[name]
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")


def _put_off(name: str) -> None:
    """Have the `__init__` of a package wait: those of the SDK import clients, frameworks and command lines."""
    if name not in sys.modules and (spec := find_spec(name)) is not None:
        module = sys.modules[name] = module_from_spec(spec)
        module.__class__ = _Package
        parent, _, own = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], own, module)


class _AdapterMadeWhenUsed(TypeAdapter[Checked]):
    """A validator of a union of models that waits like those of the models do."""

    def __init__(self, type_: Any, *, config: ConfigDict | None = None, _parent_depth: int = 2, **rest: Any) -> None:
        if config is None and not isinstance(type_, type):
            config = ConfigDict(defer_build=True)
        super().__init__(type_, config=config, _parent_depth=_parent_depth + 1, **rest)


@contextmanager
def _models_made_when_used() -> Iterator[None]:
    """Leave the validators of the SDK's five hundred pydantic models to their first use, which most never see."""
    config = BaseModel.model_config
    BaseModel.model_config = ConfigDict(defer_build=True)
    pydantic.TypeAdapter = _AdapterMadeWhenUsed
    try:
        yield
    finally:
        BaseModel.model_config = config
        pydantic.TypeAdapter = TypeAdapter


_put_off("mcp")
_put_off("mcp.server")
with _models_made_when_used():
    import mcp_types
    from mcp.server.auth.middleware.bearer_auth import BearerAuthBackend as BearerAuthBackend
    from mcp.server.auth.provider import AccessToken as AccessToken
    from mcp.server.lowlevel.server import Server as Server
    from mcp.server.stdio import stdio_server as stdio_server
    from mcp.server.transport_security import TransportSecuritySettings as TransportSecuritySettings
    from mcp.shared.exceptions import MCPError as MCPError

types = mcp_types
