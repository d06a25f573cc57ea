"""A failed append invites a retry if it has an idempotency key or certainly was not made."""

from __future__ import annotations

from typing import Any

import pytest
from support.http_service import PATIENT, numbered_message, run_service

from redismem import Memory
from redismem.errors import StoreUnavailable, Unconfirmed
from redismem.web.access import Access
from redismem.web.service import Service

KEY = {"Idempotency-Key": "turn-1"}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Unconfirmed("0 of 1 replicas had it in time"), "unconfirmed"),
        (TimeoutError(), "too_late"),
        (StoreUnavailable("no answer came", may_be_done=True), "store_unavailable"),
    ],
)
async def test_an_append_that_may_have_been_made_invites_a_retry_only_with_a_key(
    memory: Memory, error: Exception, code: str
) -> None:
    """A retry without a key could store the message twice."""

    class Failing(Service):
        def session(self, caller: Any, session_id: str, owner: str | None = None) -> Any:
            raise error

    name = memory.store.keys.namespace
    async with run_service(Failing({name: memory}, Access.of("", name), PATIENT)) as http:
        for path in ("/v1/sessions/s/messages", "/v1/sessions/s/messages?read=true"):
            answers = [await http.ask("POST", path, json=numbered_message(1), headers=headers) for headers in ({}, KEY)]
            assert [answer.json()["code"] for answer in answers] == [code, code]
            assert [answer.headers.get("retry-after") for answer in answers] == [None, "1"]
        answer = await http.ask("PATCH", "/v1/sessions/s/state", json={"plan": 1})
        assert (answer.json()["code"], answer.headers["retry-after"]) == (code, "1")


async def test_an_append_that_was_not_made_invites_a_retry(memory: Memory) -> None:
    class Failing(Service):
        def session(self, caller: Any, session_id: str, owner: str | None = None) -> Any:
            raise StoreUnavailable("the memory is full", reason="OOM")

    name = memory.store.keys.namespace
    async with run_service(Failing({name: memory}, Access.of("", name), PATIENT)) as http:
        answer = await http.ask("POST", "/v1/sessions/s/messages", json=numbered_message(1))
        assert (answer.json()["reason"], answer.headers["retry-after"]) == ("OOM", "1")
