"""Requests are begun by their priority, and are refused once one more would wait for too long."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest
from support.http_connection import ANSWER, REQUEST, Protocol, answer_whole, turn

from redismem.web.http import request_queue
from redismem.web.http.request_queue import ARRIVED_S, BATCH_COUNT, LONGEST_S, NEW_WORK_COUNT, Priority, RequestQueue

REFUSAL = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 4\r\n\r\nlate"
CLOSING = REFUSAL.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
STOP, APPEND = b"POST /stop", b"POST /append"


class Waiting:
    """A queue whose time is the test's."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.begun: list[str] = []
        self.refused_count = 0
        self.queue = RequestQueue(self.priority_of, self.refuse)

    @staticmethod
    def priority_of(scope: Any) -> Priority:
        return {"/stop": Priority.AT_ONCE, "/append": Priority.REPLY}.get(scope["path"], Priority.NEW_WORK)

    def refuse(self, scope: Any) -> tuple[int, bytes, bytes]:
        del scope
        self.refused_count += 1
        return 503, b"content-length: 4\r\n", b"late"

    def add(self, kind: Priority, count: int) -> None:
        for _ in range(count):
            self.queue.begin(asyncio.get_running_loop(), kind, {}, partial(self.begun.append, kind.name))

    async def pass_iterations(self, count: int, each_s: float) -> None:
        for _ in range(count):
            self.now_s += each_s
            await turn()

    async def become_full(self) -> None:
        """Let new work wait, for too long and for long enough."""
        self.add(Priority.NEW_WORK, 40 * BATCH_COUNT)
        for _ in range(8):
            await self.pass_iterations(1, LONGEST_S / 8)
            self.queue.is_full(Priority.NEW_WORK)

    def connection(self) -> Protocol:
        protocol = Protocol(answer_whole)
        protocol.queue = self.queue
        return protocol


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Waiting:
    made = Waiting()
    monkeypatch.setattr(request_queue, "monotonic", lambda: made.now_s)
    return made


async def test_an_iteration_begins_a_few_and_the_others_follow_in_their_order() -> None:
    begun: list[int] = []
    queue = RequestQueue(Waiting.priority_of, lambda _: (503, b"", b""))
    scopes: list[dict[str, Any]] = [{} for _ in range(3 * BATCH_COUNT)]
    for number, scope in enumerate(scopes):
        queue.begin(asyncio.get_running_loop(), Priority.NEW_WORK, scope, partial(begun.append, number))
    for iterations in (1, 2, 3):
        assert begun == list(range(iterations * BATCH_COUNT))
        await turn()
    assert [ARRIVED_S in scope for scope in scopes] == [False] * BATCH_COUNT + [True] * 2 * BATCH_COUNT
    queue.begin(asyncio.get_running_loop(), Priority.NEW_WORK, {}, partial(begun.append, -1))
    assert begun[-1] == -1, "nothing waits, so it is begun at once"


async def test_replies_go_before_new_work_which_keeps_a_share(waiting: Waiting) -> None:
    waiting.add(Priority.NEW_WORK, 3 * BATCH_COUNT)
    waiting.add(Priority.REPLY, BATCH_COUNT)
    waiting.begun.clear()
    await turn()
    assert waiting.begun == ["REPLY"] * (BATCH_COUNT - NEW_WORK_COUNT) + ["NEW_WORK"] * NEW_WORK_COUNT
    waiting.begun.clear()
    await turn()
    assert waiting.begun == ["REPLY"] * NEW_WORK_COUNT + ["NEW_WORK"] * (BATCH_COUNT - NEW_WORK_COUNT)


async def test_it_is_full_while_one_more_would_wait_for_too_long(waiting: Waiting) -> None:
    waiting.add(Priority.NEW_WORK, 20 * BATCH_COUNT)
    assert not waiting.queue.is_full(Priority.NEW_WORK), "a burst: nothing has waited yet"
    await waiting.pass_iterations(1, LONGEST_S / 8)
    assert not waiting.queue.is_full(Priority.NEW_WORK), "too many, but not for long"
    await waiting.pass_iterations(5, LONGEST_S / 8)
    assert waiting.queue.is_full(Priority.NEW_WORK), "thirteen batches are left, and eight fit"
    assert not waiting.queue.is_full(Priority.REPLY), "no reply waits"
    await waiting.pass_iterations(5, LONGEST_S / 8)
    assert not waiting.queue.is_full(Priority.NEW_WORK), "eight are left"
    waiting.add(Priority.NEW_WORK, BATCH_COUNT)
    assert waiting.queue.is_full(Priority.NEW_WORK), "the overload is not over"


async def test_a_pause_of_the_process_refuses_nothing(waiting: Waiting) -> None:
    waiting.add(Priority.NEW_WORK, 4 * BATCH_COUNT)
    for _ in range(4):
        await waiting.pass_iterations(1, 60)
        assert not waiting.queue.is_full(Priority.NEW_WORK)
        await waiting.pass_iterations(4, 0.001)
        assert not waiting.queue.is_full(Priority.NEW_WORK)
        waiting.add(Priority.NEW_WORK, 4 * BATCH_COUNT)


async def test_what_never_waits_is_begun_before_those_that_do(waiting: Waiting) -> None:
    waiting.add(Priority.NEW_WORK, 5 * BATCH_COUNT)
    first, later = waiting.connection(), waiting.connection()
    later.data_received(REQUEST)
    first.data_received(REQUEST.replace(b"GET /", STOP))
    await turn()
    await turn()
    assert (first.wire.sent, later.wire.sent) == ([ANSWER], [])
    await waiting.pass_iterations(8, 0)
    assert later.wire.sent == [ANSWER]


async def test_a_refused_request_leaves_the_connection_to_the_next_one(waiting: Waiting) -> None:
    await waiting.become_full()
    protocol = waiting.connection()
    body = b"content-length: 5\r\n\r\n"
    protocol.data_received(REQUEST[:-2] + body)
    await turn()
    assert protocol.wire.sent == [REFUSAL], "before its body is read"
    protocol.data_received(b"12345" + REQUEST.replace(b"GET /", APPEND))
    await waiting.pass_iterations(4, 0)
    assert protocol.wire.sent == [REFUSAL, ANSWER]


async def test_a_refusal_closes_a_connection_that_cannot_go_on(waiting: Waiting) -> None:
    await waiting.become_full()
    protocol = waiting.connection()
    await protocol.ask(REQUEST[:-2] + b"expect: 100-continue\r\ncontent-length: 5\r\n\r\n")
    assert protocol.wire.sent == [CLOSING, "close"]


async def test_the_last_request_of_a_connection_is_read_to_its_end_and_none_is_begun_behind_it(
    waiting: Waiting,
) -> None:
    await waiting.become_full()
    protocol = waiting.connection()
    await protocol.ask(REQUEST[:-2] + b"connection: close\r\ncontent-length: 5\r\n\r\n1234")
    assert protocol.wire.sent == [CLOSING], "the kernel drops an answer if bytes are unread at the end"
    protocol.data_received(b"5" + REQUEST.replace(b"GET /", STOP))
    assert protocol.wire.sent == [CLOSING, "close"]
    assert not protocol.tasks


async def test_requests_of_a_pipeline_are_answered_in_their_order(waiting: Waiting) -> None:
    await waiting.become_full()
    protocol = waiting.connection()
    protocol.data_received(REQUEST.replace(b"GET /", STOP) + REQUEST + REQUEST)
    await waiting.pass_iterations(50, 0)
    told = b"".join(part for part in protocol.wire.sent if isinstance(part, bytes))
    assert told == 3 * ANSWER, "an answer cannot be sent before that of the request before it"
    assert waiting.refused_count == 0
