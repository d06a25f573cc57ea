"""The tree of errors."""

from __future__ import annotations

import pickle
import re

import pytest

import redismem
from redismem import errors
from redismem.errors import Conflict, CorruptSession, RedismemError, StoreUnavailable

CLASSES = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, RedismemError) and kind is not RedismemError
}
BRANCHES = re.findall(r"^(│   )?[├└]── (\w+) +(.*)$", errors.__doc__ or "", re.MULTILINE)
DRAWN = {name: said for _, name, said in BRANCHES}


def parent_of(name: str) -> str:
    """Return the parent of a class in the drawn tree: an indented class belongs to the last unindented one."""
    above = "RedismemError"
    for is_set_in, found, _ in BRANCHES:
        if found == name:
            return above if is_set_in else "RedismemError"
        above = above if is_set_in else found
    raise AssertionError(name)


def test_the_drawn_tree_has_all_classes() -> None:
    assert list(DRAWN) != []
    assert set(DRAWN) == set(CLASSES)


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_has_the_bases_of_the_drawn_tree(name: str) -> None:
    kind = CLASSES[name]
    also = re.search(r"\(also an? (\w+)\)", DRAWN[name])
    assert kind.__bases__[0].__name__ == parent_of(name)
    assert [base.__name__ for base in kind.__bases__[1:]] == ([also[1]] if also else [])
    assert kind.__doc__


@pytest.mark.parametrize("name", CLASSES)
def test_an_error_names_its_session_and_can_be_pickled(name: str) -> None:
    error = CLASSES[name]("it went wrong", "user-42")
    again = pickle.loads(pickle.dumps(error))
    for each in (error, again):
        assert (each.session_id, str(each)) == ("user-42", "session user-42: it went wrong")
    assert str(CLASSES[name]("it went wrong")) == "it went wrong"


def test_the_attributes_of_an_error_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(Conflict("x", "s", 7))).last_seq == 7
    assert pickle.loads(pickle.dumps(CorruptSession("x", "s", "1-a"))).epoch == "1-a"
    assert pickle.loads(pickle.dumps(StoreUnavailable("x", "s", "OOM"))).reason == "OOM"


def test_every_error_that_a_memory_raises_is_exported() -> None:
    drawn_later = {name for name in DRAWN if not hasattr(redismem, name)}
    assert drawn_later <= {"ModelFailed", "ProviderUnavailable"}
