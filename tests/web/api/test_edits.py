"""The routes that change or remove messages, over a real connection and on both stores."""

from __future__ import annotations

import json
from typing import Any

from support.edited import summarize
from support.http_service import RunningService, numbered_message, serve_memory
from support.stores import Store

from redismem import Session, Settings

PATH = "/v1/sessions/user-42"


async def seqs(session: Session) -> list[int]:
    return [message.seq for message in await session.messages(include_originals=True)]


async def test_a_message_is_replaced_in_its_place(http: RunningService, session: Session) -> None:
    posted = await http.ask("POST", f"{PATH}/messages", json=[numbered_message(1), numbered_message(2)])
    new = {"role": "user", "content": "half \ud83d", "n": 1.0}
    body = json.dumps(new).encode()
    answer = await http.ask("PUT", f"{PATH}/messages/2", content=body, headers={"If-Match": posted.headers["etag"]})
    assert (answer.status_code, answer.json()["seq"], answer.json()["message"]) == (200, 2, new)
    assert (await session.messages())[1].to_openai() == new
    await session.append(numbered_message(3))
    late = await http.ask("PUT", f"{PATH}/messages/2", content=body, headers={"If-Match": posted.headers["etag"]})
    assert (late.status_code, late.json()["last_seq"], late.json()["cleared"]) == (409, 3, False)
    missing = await http.ask("PUT", f"{PATH}/messages/9", content=body)
    assert (missing.status_code, missing.json()["code"]) == (404, "not_in_window")
    for wrong_body in (b"[]", b"1", b'[{"role": "user"}]', b"{}", b"NaN", b"{", b'"x"'):
        refused = await http.ask("PUT", f"{PATH}/messages/2", content=wrong_body)
        assert refused.status_code in (400, 422), wrong_body
    for wrong in ("0", "x", "-1", "1.5"):
        assert (await http.ask("PUT", f"{PATH}/messages/{wrong}", content=body)).status_code == 422
    refused = await http.ask("PUT", f"{PATH}/messages/2", content=body, headers={"If-Match": "x"})
    assert refused.status_code == 422


async def test_the_newest_messages_are_kept(http: RunningService, session: Session) -> None:
    missing = await http.ask("POST", f"{PATH}/prune", json={"max_messages": 1})
    assert (missing.status_code, missing.json()["code"]) == (404, "session_not_found")
    await session.append(*map(numbered_message, range(1, 4)))
    for body in (
        {},
        {"max_messages": -1},
        {"max_messages": None},
        {"max_messages": True},
        {"max_messages": 1, "more": 1},
    ):
        assert (await http.ask("POST", f"{PATH}/prune", json=body)).status_code == 422
    for dropped_count in (2, 0):
        answer = await http.ask("POST", f"{PATH}/prune", json={"max_messages": 1})
        assert (answer.status_code, answer.json()) == (200, {"dropped_count": dropped_count})
    assert await seqs(session) == [3]


async def test_messages_are_forgotten_behind_a_summary_too(store: Store, namespace: str) -> None:
    settings = Settings(threshold=4, recent_limit=2, keep_originals=True)
    async with store.memory(namespace, settings) as memory, serve_memory(memory) as http:
        session = memory.session("user-42")
        missing = await http.ask("POST", f"{PATH}/forget", json={"seqs": [1]})
        assert (missing.status_code, missing.json()["code"]) == (404, "session_not_found")
        await session.append(*map(numbered_message, range(1, 9)))
        await summarize(memory)
        last_seq = (await session.read()).first_seq - 1
        assert last_seq > 1
        wrong: list[Any] = [{}, {"seqs": []}, {"seqs": [0]}, {"seqs": ["1"]}, {"seqs": [True]}, {"seqs": [1] * 1_001}]
        for body in wrong:
            assert (await http.ask("POST", f"{PATH}/forget", json=body)).status_code == 422
        answer = await http.ask("POST", f"{PATH}/forget", json={"seqs": [1, 8, 99]})
        assert (answer.status_code, answer.json()) == (
            200,
            {"seqs": [1, 8], "rewritten": [{"first_seq": 1, "last_seq": last_seq}], "dropped": []},
        )
        assert await seqs(session) == list(range(2, 8))
