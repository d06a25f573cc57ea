"""Checks of item fields: errors name the problem and the expected form."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redismem import Conflict, InvalidItem
from redismem.project.items.fields import as_datetime, line, tag
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


async def test_a_moment_that_utc_cannot_hold_is_refused_and_an_old_one_can_be_read(apollo: Project) -> None:
    west, east = (timezone(timedelta(hours=hours)) for hours in (-14, 14))
    for moment in (datetime.max.replace(tzinfo=west), datetime.min.replace(tzinfo=east)):
        with pytest.raises(InvalidItem, match=r"^due_date must lie in the years 1 to 9999 in UTC$"):
            await apollo.tasks.create("a", due_date=moment)
    for moment in (datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC)):
        due = (await apollo.tasks.create("a", due_date=moment)).due_date
        assert due is not None
        assert abs(due - moment) < timedelta(milliseconds=1)
    assert [as_datetime(ms).year for ms in (-(1 << 53), 1 << 53)] == [1, 9999]


HIDDEN = "\xad\u061c\u200b\u200c\u200d\u200e\u200f\u202e\u2060\u2066\ufeff\U000e0041"


@given(
    st.lists(st.tuples(st.sampled_from("aé Яω1-"), st.text(HIDDEN, max_size=3)), min_size=1),
    st.text(HIDDEN, max_size=2),
)
def test_property_invisible_characters_make_no_other_name(parts: list[tuple[str, str]], before: str) -> None:
    plain = "".join(letter for letter, _ in parts)
    if plain.strip():
        assert line(before + "".join(map("".join, parts)), "name") == line(plain, "name")


@pytest.mark.parametrize("name", ["می‌خواهم", "क्‍ष", "👩‍💻 Ada", "❤️‍🔥", "日本"])
def test_a_joiner_stays_where_it_is_a_letter(name: str) -> None:
    assert line(name, "name") == name
    assert tag(name) == name.casefold()


def test_a_name_of_invisible_characters_is_empty() -> None:
    with pytest.raises(InvalidItem, match="not empty"):
        line(HIDDEN, "name")


async def test_names_that_look_alike_are_one_name(apollo: Project) -> None:
    made = await apollo.entities.create("Ada Okafor", "person")
    for name in ("Ada\u200b Okafor", "\ufeffAda Okafor", "Ada Okafor\u200f", "A\u200dda Okafor", "\u202eAda Okafor"):
        with pytest.raises(Conflict, match="has this name"):
            await apollo.entities.create(name, "person")
        found = await apollo.entities.find_by_name(name)
        assert found is not None
        assert found.id == made.id
    renamed = await apollo.tasks.create("\u202eMove\u200b the data")
    assert renamed.title == "Move the data"
