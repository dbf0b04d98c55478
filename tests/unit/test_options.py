"""Options of a typed dict are shown, checked and described as parameters are."""

import inspect
from typing import get_type_hints

import pytest

from mnemolog import AsyncMemoryStore, AsyncSession, MemoryStore, Session
from mnemolog.domain.options import ELSEWHERE, options_of
from mnemolog.projections.recall.question import RecallOptions, TurnFilters

TAKES = [
    (MemoryStore.recall, RecallOptions),
    (Session.recall, RecallOptions),
    (AsyncMemoryStore.recall, RecallOptions),
    (AsyncSession.recall, RecallOptions),
    (MemoryStore.find, TurnFilters),
    (MemoryStore.context, TurnFilters),
    (Session.context, TurnFilters),
    (Session.prefetch, TurnFilters),
]


@pytest.mark.parametrize(("method", "fields"), TAKES, ids=lambda value: getattr(value, "__qualname__", None))
def test_a_method_shows_each_option_with_its_type_default_and_description(method, fields):
    """In its signature, its type hints and its docstring, which `help`, the site and the API show."""
    parameters, hints, lines = inspect.signature(method).parameters, get_type_hints(method), inspect.getdoc(method)
    for name, (kind, option) in options_of(fields).items():
        assert parameters[name].annotation == hints[name] == kind
        assert parameters[name].default is option.default
        assert f"- `{name}`: {option.means}" in lines.splitlines()
    assert not any(item.kind is item.VAR_KEYWORD for item in parameters.values())


@pytest.mark.parametrize("elsewhere", ELSEWHERE)
def test_a_name_of_another_memory_is_answered_with_the_name_here(elsewhere):
    """A method of the store or the session, or an option. Names that mean nothing here get no advice."""
    here = ELSEWHERE[elsewhere]
    classes = [of for of in (MemoryStore, Session, AsyncMemoryStore, AsyncSession) if not hasattr(of, elsewhere)]
    owners = [of for of in classes if hasattr(of, here)]
    for of in owners:
        with pytest.raises(AttributeError, match=f"no attribute '{elsewhere}'; here it is '{here}'"):
            getattr(of.__new__(of), elsewhere)
    if not owners:
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{elsewhere}'; here it is '{here}'"):
            (MemoryStore.switch if here == "agent" else MemoryStore.recall)(None, **{elsewhere: 1})
    with pytest.raises(AttributeError, match=r"no attribute 'nonsense'$"):
        MemoryStore.__new__(MemoryStore).nonsense  # noqa: B018
