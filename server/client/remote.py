"""Methods that a server carries out: derived from the table of operations, for each class of the library."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from functools import update_wrapper
from itertools import chain
from typing import Any, Final, TypeVar

import msgspec

from mnemolog.domain import errors
from mnemolog.domain.limits import checked_whole
from mnemolog.domain.position import Position
from mnemolog.domain.result import Results
from mnemolog.operation_table import Method
from mnemolog.server.client.connection import Connection
from mnemolog.server.client.operation import ClientOperation
from mnemolog.server.http.routes import BY_METHOD, LEFT_OUT, ROUTES, HttpOperation
from mnemolog.server.http.serialization import PAGE_MAX, ListPage, Value

Class = TypeVar("Class", bound=type)

BY_NAME: Final = {operation.name: ClientOperation(operation) for operation in ROUTES}
_AS_OF: Final = {operation.method.__name__: operation for operation in ROUTES if operation.as_of}


class Remote:
    """The base of what is on a server: the connection, and the arguments that each call of it sends."""

    _given: Mapping[str, Any] = {}

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def _call(self, name: str, /, **arguments: Any) -> Any:
        """Run an operation. `default` is returned where there is no value; `progress` is not called."""
        operation = BY_NAME[name]
        default = arguments.pop("default", None)
        arguments.pop("progress", None)
        arguments |= self._given
        if operation.is_paged:
            last = arguments.pop("last", None)
            falls = arguments.get("newest_first", False)
            if last is not None:
                arguments |= {"limit": last, "newest_first": True}
            checked_whole("limit" if last is None else "last", arguments.get("limit", PAGE_MAX), least=1)
            pages = self._pages(operation, arguments)
            first = next(pages)  # So that a refused call raises now.
            if operation.is_iterator:
                return map(self._result, chain(first.items, (item for page in pages for item in page.items)))
            whole = [first, *pages]
            found = Results(self._result(item) for page in whole for item in page.items)
            found.next = None if whole[-1].next is None else Position(whole[-1].next)
            if last is not None and not falls:
                found.reverse()
            found.stale = first.stale
            return found
        answer = operation.result(self._connection.send(operation.call(arguments)))
        match answer:
            case ListPage():
                listed = Results(map(self._result, answer.items))
                listed.stale = answer.stale
                return listed if operation.is_results else list(listed)
            case Value():
                return default if answer.value is msgspec.UNSET else answer.value
        return self._result(answer)

    def _result(self, value: Any) -> Any:
        """Return what a method returns for a value of an answer."""
        return value

    def _pages(self, operation: ClientOperation, arguments: dict[str, Any]) -> Iterator[ListPage[Any]]:
        """Yield the pages of a list up to its `limit`, or to its end."""
        left = arguments.get("limit", operation.limit)
        cursor = "before" if arguments.get("newest_first") else "after"
        while True:
            if left is None or left > PAGE_MAX:
                arguments["limit"] = PAGE_MAX
            elif "limit" in arguments or left != operation.limit:
                arguments["limit"] = left
            page = operation.result(self._connection.send(operation.call(arguments)))
            yield page
            left = None if left is None else left - len(page.items)
            if page.next is None or left == 0:
                return
            arguments[cursor] = page.next


def remote(cls: Class) -> Class:
    """Have a server carry out the methods of a class that the table of operations lists.

    The class is derived from one of the library. Methods that it defines itself stay. What the server does not offer
    raises `StoreError`, which says what there is instead.
    """
    for name, method in inspect.getmembers(cls, inspect.isfunction):
        if not name.startswith("_") and name not in vars(cls):
            operation = BY_METHOD.get(method) or _AS_OF.get(name)
            if operation is not None:
                setattr(cls, name, _derived(operation, method))
            elif method in LEFT_OUT:
                setattr(cls, name, _not_offered(method))
    return cls


def _derived(operation: HttpOperation, method: Method) -> Method:
    signature = inspect.signature(method)

    def call(self: Remote, /, *args: Any, **kwargs: Any) -> Any:
        try:
            arguments = signature.bind(self, *args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"{method.__qualname__}() {error}") from None
        del arguments["self"]
        return self._call(operation.name, **arguments)

    return update_wrapper(call, method)


def _not_offered(method: Method) -> Method:
    def refuse(self: Remote, /, *args: Any, **kwargs: Any) -> Any:
        raise errors.StoreError(f"{method.__name__} is not for a store on a server: {LEFT_OUT[method]}")

    return update_wrapper(refuse, method)
