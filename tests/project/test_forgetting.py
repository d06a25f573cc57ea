"""Projects lose what an owner or a session of a forgotten person leads to, and the report names the rest."""

from __future__ import annotations

from typing import Any

import pytest
from support.stored import read_namespace

from redismem import ForgetIncomplete, Memory, StoreUnavailable
from redismem.inspection.check import check
from redismem.project.items.items import Items

SECRET = "quokka"
ITEMS = "texts of project items, and records of project conversations whose messages had no owner or had gone before"


def make_message(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


async def test_the_record_of_a_conversation_goes_with_its_messages_and_no_other(
    memory: Memory, raw: Any, namespace: str
) -> None:
    apollo, zeus = memory.project("apollo"), memory.project("zeus")
    talk = await apollo.conversations.start(f"{SECRET} moves", tags=[SECRET])
    await apollo.conversations.add(talk.id, make_message(SECRET), owner="ann")
    decision = await apollo.decisions.create("Use Redis", rationale="fast")
    gone = await apollo.decisions.create("Use nothing", rationale="slow")
    await apollo.conversations.end(talk.id, f"{SECRET} moved", [decision.id, gone.id])
    await apollo.decisions.erase(gone.id)
    hers = await zeus.conversations.start("of Bea")
    await zeus.conversations.add(hers.id, make_message("hello"), owner="bea")
    forgotten = await memory.forget(owner="ann")
    assert (forgotten.session_count, forgotten.item_count) == (1, 1)
    assert forgotten.left_items == (f"apollo/{decision.id}",)
    assert forgotten.not_searched == (ITEMS,)
    assert not await apollo.conversations.exists(talk.id)
    assert await zeus.conversations.exists(hers.id)
    assert SECRET not in repr(await read_namespace(raw, namespace))
    assert [violation async for violation in check(memory.store)] == []
    by_prefix = await memory.forget(prefix=f"project:zeus:{hers.id}")
    assert (by_prefix.session_count, by_prefix.item_count) == (1, 1)
    assert not await zeus.conversations.exists(hers.id)


async def test_an_entity_named_like_the_owner_goes_and_what_else_names_it_is_told(memory: Memory) -> None:
    apollo = memory.project("apollo")
    person = await apollo.entities.create("customer-17", "person", description="lives in Ulm")
    other = await apollo.entities.create("Customer-18", "person")
    thing = await memory.project("zeus").entities.create("customer-17", "component")
    mine = await apollo.tasks.create("Call back", assignee="customer-17")
    await apollo.tasks.create("Call back", assignee="Customer-17")
    forgotten = await memory.forget(owner="customer-17")
    assert (forgotten.session_count, forgotten.item_count) == (0, 1)
    assert forgotten.left_items == (f"apollo/{mine.id}", f"zeus/{thing.id}")
    assert not await apollo.entities.exists(person.id)
    assert (await memory.forget(owner="customer-18")).item_count == 0, "capitals tell people apart"
    assert await apollo.entities.exists(other.id)


async def test_a_failure_in_between_loses_no_record(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    apollo = memory.project("apollo")
    talk = await apollo.conversations.start("a talk")
    await apollo.conversations.add(talk.id, make_message(SECRET), owner="ann")

    async def fail(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(Items, "read", fail)
        with pytest.raises(ForgetIncomplete):
            await memory.forget(owner="ann")
    assert await apollo.conversations.session(talk.id).exists(), "the record goes first: the session leads to it"
    forgotten = await memory.forget(owner="ann")
    assert (forgotten.session_count, forgotten.item_count) == (1, 1)


async def test_rate_limits_named_after_the_person_go_and_others_are_told(
    memory: Memory, raw: Any, namespace: str
) -> None:
    for name in ("customer-17", "chat:customer-17", "customer-17:chat:x", "customer-170", "x-customer-17"):
        await memory.take(name, 0.01)
    forgotten = await memory.forget(owner="customer-17")
    assert (forgotten.rate_count, forgotten.not_searched) == (3, ("other names of rate limits",))
    left = {name.rpartition(b":rate:")[2] for name in await read_namespace(raw, namespace) if b":rate:" in name}
    assert left == {b"customer-170", b"x-customer-17"}
    forgotten = await memory.forget(prefix="customer-17")
    assert (forgotten.rate_count, forgotten.not_searched) == (1, ())
    assert (await memory.forget(owner="customer-17")).rate_count == 0
