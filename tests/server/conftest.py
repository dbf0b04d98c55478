"""Requests made from the OpenAPI document need schemathesis: `make adapters ADAPTERS=server`."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore = ["schema"] if find_spec("schemathesis") is None else []
