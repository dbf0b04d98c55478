"""The table of operations: whole, and nothing in it twice."""

import inspect

import pytest

from mnemolog.operation_table import OWNERS
from mnemolog.server.http.routes import LEFT_OUT, ROUTES
from mnemolog.session import Session


@pytest.mark.parametrize("kind", OWNERS)
def test_every_public_method_is_offered_or_left_out_with_a_reason(kind):
    """A new method cannot be added without saying how it is reached over HTTP."""
    offered = {item.method.__name__ for item in ROUTES if item.owner is kind}
    if kind is Session:
        offered |= {item.same_as.__name__ for item in ROUTES if item.same_as is not None}
    left_out = {method.__name__ for method in LEFT_OUT if method == getattr(kind, method.__name__, None)}
    public = {name for name, _ in inspect.getmembers(kind, inspect.isroutine) if not name.startswith("_")}
    assert public == offered | left_out
    assert not offered & left_out


def test_no_route_and_no_name_is_given_twice():
    """So a request means one method, and a method has one request."""
    routes = [(item.http, "/".join("{}" if "{" in part else part for part in item.path.split("/"))) for item in ROUTES]
    assert len(set(routes)) == len(routes)
    assert len({item.name for item in ROUTES}) == len(ROUTES)
