"""Append ids while Redis is down: an append that Redis has is known, and made once."""

from __future__ import annotations

import pytest
from support.checks import user
from support.faulty import Faulty, wait_until_replayed

from redismem import InvalidMessage, Memory


async def test_an_id_that_redis_has_is_known_while_it_is_away(degradable: Memory, faulty: Faulty) -> None:
    """A repeated turn appears once in the served context, and the session's cached context is kept."""
    session = degradable.session("a")
    await session.append_and_read(user(1), user(2), id="one")
    await session.append(user(3), id="two")
    await session.update(id="change", merge={"x": 1})
    faulty.is_away = True
    await session.append(user(4), id="three")
    for id, seqs, sent in (
        ("one", (1, 2), (user(1), user(2))),
        ("two", (3, 3), (user(3),)),
        ("three", (4, 4), (user(4),)),
    ):
        again = await session.append(*sent, id=id)
        assert (again.duplicate, again.degraded, (again.first_seq, again.last_seq)) == (True, True, seqs)
    await session.update(id="change", merge={"x": 2})
    with pytest.raises(InvalidMessage, match="used for an append"):
        await session.update(id="one", merge={"x": 3})
    faulty.is_away = False
    await wait_until_replayed(degradable)
    faulty.is_away = True
    context = await session.append_and_read(user(5))
    assert [message.content for message in context.messages] == [user(n)["content"] for n in range(1, 6)]
    assert context.state.params == {"x": 1}


async def test_unreadable_ids_do_not_stop_a_degraded_turn(degradable: Memory, faulty: Faulty, namespace: str) -> None:
    session = degradable.session("a")
    await session.append(user(1))
    await faulty._client.hset(degradable.store.keys.session("a").state, "ids_a", "foreign")
    await session.read()
    faulty.is_away = True
    context = await session.append_and_read(user(2), id="two")
    assert [message.content for message in context.messages] == [user(n)["content"] for n in (1, 2)]
    assert (await session.append(user(2), id="two")).duplicate
