"""Redis goes back to an older snapshot and takes other appends: what was seen before is not taken for the present."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from support.checks import user
from support.http_service import serve_memory

from redismem import Conflict, Memory, Session
from redismem.context.context import Context
from redismem.context.results import Receipt


async def read_after_changes(session: Session) -> Context:
    """The newest five ids are of changes of the state."""
    await session.append(user("lost"))
    for number in range(7):
        await session.merge({"n": number})
    return await session.read()


async def append_and_take(session: Session) -> Receipt:
    receipt = (await session.append_and_read(user("lost"))).receipt
    assert receipt is not None
    return receipt


async def append_twice(session: Session) -> Receipt:
    return [await session.append(user("lost"), id="lost") for _ in range(2)][1]


LOOKS: dict[str, Callable[[Session], Awaitable[Context | Receipt]]] = {
    "context": lambda session: session.append_and_read(user("lost"), id="other"),
    "context after changes of the state": read_after_changes,
    "receipt": lambda session: session.append(user("lost"), id="other"),
    "receipt of append_and_read": append_and_take,
    "receipt of a duplicate": append_twice,
    "receipt of a rewrite": lambda session: session.rewrite(1, [user("lost")], id="other"),
}


class Snapshot:
    """The messages and the state of a session, as they are now."""

    def __init__(self, raw: Any, session: Session, memory: Memory) -> None:
        keys = memory.store.keys.session(session.id)
        self._raw, self._keys = raw, (keys.messages, keys.state)

    async def take(self) -> Snapshot:
        self._dumps = [await self._raw.dump(key) for key in self._keys]
        return self

    async def restore(self) -> None:
        for key, dump in zip(self._keys, self._dumps, strict=True):
            await self._raw.restore(key, 0, dump, replace=True)


@pytest.mark.parametrize("look", LOOKS)
async def test_what_was_seen_in_a_lost_future_is_refused(memory: Memory, session: Session, raw: Any, look: str) -> None:
    await session.append(user("first"))
    snapshot = await Snapshot(raw, session, memory).take()
    seen = await LOOKS[look](session)
    await snapshot.restore()
    await session.append(*[user("other")] * (seen.last_seq - 1), id="other")
    now = await session.read()
    assert (now.epoch, now.last_seq) == (seen.epoch, seen.last_seq)
    for change in (session.append(user("reply"), expect=seen), session.pop(1, expect=seen)):
        with pytest.raises(Conflict) as refused:
            await change
        assert not refused.value.cleared
    assert (await session.append(user("reply"), expect=now)).last_seq == now.last_seq + 1


async def test_an_etag_of_a_lost_future_is_refused(memory: Memory, session: Session, raw: Any) -> None:
    path = f"/v1/sessions/{session.id}/messages"
    await session.append(user("first"))
    snapshot = await Snapshot(raw, session, memory).take()
    async with serve_memory(memory) as http:
        lost = (await http.ask("POST", path, json=user("lost"))).headers["etag"]
        await snapshot.restore()
        kept = (await http.ask("POST", path, json=user("other"))).headers["etag"]
        answers = [await http.ask("POST", path, json=user("reply"), headers={"if-match": tag}) for tag in (lost, kept)]
    assert [answer.status_code for answer in answers] == [409, 201]


@pytest.mark.parametrize("changes_count", [1, 4, 5, 9, 20])
async def test_changes_of_the_state_refuse_nobody(session: Session, changes_count: int) -> None:
    context = await session.append_and_read(user("first"))
    for number in range(changes_count):
        await session.merge({"n": number})
    again = await session.read()
    assert (await session.append(user("second"), expect=context)).last_seq == 2
    with pytest.raises(Conflict):
        await session.append(user("third"), expect=again)
