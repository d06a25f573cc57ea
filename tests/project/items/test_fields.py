"""Checks of item fields: errors name the problem and the expected form."""

from __future__ import annotations

from typing import Any

import pytest

from redismem import InvalidItem
from redismem.project.project import Project

IDS: dict[Any, str] = {
    **dict.fromkeys(("", "x", "d-00000000000000000", "d-00000000000000000i", 5), "no id of an item"),
    "t-000000000000000000": "a task's id",
    "e-000000000000000000": "an entity's id",
    "c-000000000000000000": "a conversation's id",
}


@pytest.mark.parametrize("id", IDS)
async def test_what_is_no_id_of_a_decision_is_refused_with_what_it_is(apollo: Project, id: Any) -> None:
    with pytest.raises(InvalidItem) as refused:
        await apollo.decisions.get(id)
    assert str(refused.value) == f"the id is {IDS[id]}: a decision's is d- and 18 digits and small letters"


async def test_a_link_to_an_item_of_the_wrong_kind_says_which_kind_it_takes(apollo: Project) -> None:
    made = await apollo.decisions.create("a")
    with pytest.raises(InvalidItem, match=r"^the other's id is a decision's id: a task's is t- and 18 digits"):
        await apollo.decisions.link_task(made.id, made.id)


async def test_what_may_be_of_any_kind_and_is_no_id_is_told_how_one_begins(apollo: Project) -> None:
    talk = await apollo.conversations.start()
    with pytest.raises(InvalidItem, match="no id of an item, which begins with d-, t-, e-, c-"):
        await apollo.conversations.end(talk.id, "", ["x"])
