"""What becomes of every failure: one failed attempt, with what the caller needs to decide on the next."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import traceback
import tracemalloc
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.provider_server import HUGE_BYTES, ProviderServer, in_s

from redismem.errors import ModelFailed
from redismem.messages import Message
from redismem.models.http_model import MAX_WAIT_S, retry_after_s

KEY = "canary-key"
MESSAGES = [Message("user", "Where is order W123?"), Message("assistant", "On its way: canary-text.")]


async def failure(model: Any, messages: Any = MESSAGES) -> ModelFailed:
    async with asyncio.timeout(60):
        with pytest.raises(ModelFailed) as caught:
            await model.summarize(messages, None, 300)
    return caught.value


@pytest.mark.parametrize(
    ("mode", "permanent", "counts", "words"),
    [
        ("400", True, True, "400 context_length_exceeded"),
        ("401", True, True, "401 invalid_api_key authentication_error"),
        ("404", True, True, "404 NOT_FOUND"),
        ("echo", True, True, "422 INVALID"),
        ("429", False, False, "429 rate_limit_error RESOURCE_EXHAUSTED"),
        ("quota", True, True, "429 insufficient_quota"),
        ("500", False, True, "500 api_error"),
        ("503", False, True, "503 UNAVAILABLE"),
        ("529", False, True, "529 overloaded_error"),
        ("redirect", True, True, "307"),
        ("garbage", False, True, "something other than JSON"),
        ("not-utf8", False, True, "something other than JSON in UTF-8"),
        ("surrogate", False, True, "something other than JSON in UTF-8"),
        ("deep", False, True, "something other than JSON"),
        ("nothing", False, True, "something other than JSON"),
        ("null", False, True, "without a text"),
        ("empty", False, True, "empty text"),
        ("number", False, True, "text"),
        ("tool_calls", False, True, "text"),
        ("refused", True, True, ""),
        ("reset", False, True, "could not be asked"),
        ("drop", False, True, "could not be asked"),
        ("cut", False, True, "could not be asked"),
        ("huge", False, True, "more than 1048576 bytes"),
    ],
)
async def test_each_failure_is_one_failed_attempt(
    server: Any, model: Any, provider: Any, mode: Any, permanent: Any, counts: Any, words: Any
) -> None:
    server.mode = mode
    failed = await failure(model)
    assert (failed.permanent, failed.counts, failed.retry_after_s) == (permanent, counts, None)
    assert words in str(failed)
    assert len(server.asked) == 1, "one attempt is one request"
    server.mode = "ok"
    assert (await model.summarize(MESSAGES, None, 300)).text == server.text, "the next attempt finds the model usable"


@pytest.mark.parametrize("mode", ["hang", "drip"])
async def test_the_whole_request_has_a_deadline(server: Any, opened: Any, mode: Any) -> None:
    server.mode = mode
    async with opened(timeout_s=1.5) as model:
        failed = await failure(model)
        assert "did not answer within 1.5 s" in str(failed)
        assert (failed.permanent, failed.counts) == (False, True)
        server.mode = "ok"
        assert (await model.summarize(MESSAGES, None, 300)).text == server.text


async def test_an_answer_may_come_late(server: Any, model: Any) -> None:
    server.mode = "hang"
    asked = asyncio.create_task(model.summarize(MESSAGES, None, 300))
    await asyncio.to_thread(server.wait_for_asked, 1)
    assert not asked.done()
    server.release()
    assert (await asked).text == server.text


async def test_a_cancelled_attempt_leaves_the_model_usable(server: Any, model: Any) -> None:
    server.modes.extend(["hang"])
    asked = asyncio.create_task(model.summarize(MESSAGES, None, 300))
    await asyncio.to_thread(server.wait_for_asked, 1)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert (await model.summarize(MESSAGES, None, 300)).text == server.text


async def test_nobody_listens(provider: Any, opened: Any) -> None:
    async with opened(base_url="http://127.0.0.1:1/v1") as model:
        assert "ConnectError" in str(await failure(model))


@pytest.mark.parametrize("provider", ["openai"], indirect=True)
async def test_a_reply_of_10_mb_is_not_taken_into_memory(server: Any, model: Any) -> None:
    server.modes.extend(["500", "raw"])
    server.raw = b'{"choices": "' + b"x" * HUGE_BYTES + b'"}'
    await failure(model)
    tracemalloc.start()
    try:
        assert "more than" in str(await failure(model))
        # The server, in this process too, holds a copy with headers.
        assert tracemalloc.get_traced_memory()[1] < HUGE_BYTES * 1.5
    finally:
        tracemalloc.stop()
    assert server.sent_bytes < HUGE_BYTES


async def test_text_cut_at_the_limit_is_kept(server: Any, model: Any) -> None:
    server.mode = "length"
    assert (await model.summarize(MESSAGES, None, 300)).text == "cut sho"


async def test_control_characters_are_removed(server: Any, model: Any) -> None:
    server.mode = "control"
    assert (await model.summarize(MESSAGES, None, 300)).text == "ab[31mcd\ne"


async def test_a_summary_over_its_cap_is_refused_but_a_reply_is_not(server: Any, opened: Any) -> None:
    server.text = "é" * 200
    async with opened(max_summary_bytes=399) as model:
        assert "400 bytes, 399 are allowed" in str(await failure(model))
        assert await model.reply([{"role": "user", "content": "hi"}], max_tokens=9) == server.text
    async with opened(max_summary_bytes=400) as model:
        assert (await model.summarize(MESSAGES, None, 300)).text == server.text


@pytest.mark.parametrize(
    ("mode", "headers", "wait_s", "counts", "permanent"),
    [
        ("429", {"retry-after": "7"}, 7.0, False, False),
        ("429", {"retry-after": "0.25"}, 0.25, False, False),
        ("429", {"retry-after-ms": "1500", "retry-after": "9"}, 1.5, False, False),
        ("429", {"retry-after": in_s(-3600)}, 0.0, False, False),
        ("429", {"retry-after": "121"}, MAX_WAIT_S, True, False),
        ("429", {"retry-after": "inf"}, MAX_WAIT_S, True, False),
        ("429", {"retry-after": in_s(90_000)}, MAX_WAIT_S, True, False),
        ("429", {"retry-after": "soon"}, None, False, False),
        ("429", {"retry-after": "-5"}, None, False, False),
        ("429", {"retry-after": "nan"}, None, False, False),
        ("429", {"x-should-retry": "false"}, None, True, True),
        ("503", {"retry-after": "3"}, 3.0, True, False),
        ("500", {"x-should-retry": "false"}, None, True, True),
        ("400", {"x-should-retry": "true"}, None, True, False),
    ],
)
async def test_what_the_provider_asks_for_is_handed_on(
    server: Any, model: Any, mode: Any, headers: Any, wait_s: Any, counts: Any, permanent: Any
) -> None:
    server.mode, server.headers = mode, headers
    failed = await failure(model)
    assert (failed.retry_after_s, failed.counts, failed.permanent) == (wait_s, counts, permanent)


async def test_retry_after_as_a_date(server: Any, model: Any) -> None:
    server.mode, server.headers = "429", {"retry-after": in_s(60)}
    failed = await failure(model)
    assert failed.retry_after_s is not None
    assert 0 < failed.retry_after_s <= 60
    assert failed.counts is False


@settings(max_examples=200, deadline=None)
@given(
    text=st.text(max_size=40)
    | st.floats().map(str)
    | st.datetimes().map(lambda when: when.strftime("%a, %d %b %Y %H:%M:%S %z"))
)
def test_any_retry_after_is_a_pause_or_none(text: Any) -> None:
    wait_s = retry_after_s({"retry-after": text, "retry-after-ms": text})
    assert wait_s is None or wait_s >= 0


def test_a_date_without_a_zone_is_utc() -> None:
    ahead = retry_after_s({"retry-after": f"Thu, 01 Jan {datetime.now(UTC).year + 2} 00:00:00 -0000"})
    assert ahead is not None
    assert ahead > 300 * 86_400


async def test_nothing_of_the_environment_is_used(
    server: Any, opened: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    with ProviderServer() as proxy:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        (tmp_path / "netrc").write_text("machine 127.0.0.1 login someone password else\n")
        monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
        async with opened() as model:
            await model.summarize(MESSAGES, None, 300)
        assert len(server.asked) == 1
        assert proxy.asked == []
        assert "Basic" not in server.asked[0].headers.get("authorization", "")


async def test_a_client_of_the_callers_own_neither_follows_redirects_nor_changes_the_key(
    server: Any, opened: Any
) -> None:
    server.mode = "redirect"
    own = httpx.AsyncClient(follow_redirects=True, trust_env=False, auth=("someone", "else"))
    async with own as client, opened(client=client) as model:
        assert "307" in str(await failure(model))
        assert len(server.asked) == 1
        await model.aclose()
        assert not client.is_closed, "it belongs to the caller"
        assert "Basic" not in server.asked[0].headers.get("authorization", "")


async def test_neither_key_nor_text_shows(server: Any, model: Any, provider: Any, caplog: Any) -> None:
    caplog.set_level(logging.DEBUG)
    seen = [repr(model), str(model), repr(await model.summarize([Message("user", "canary-text")], None, 300))]
    for mode in ("400", "401", "echo", "garbage", "reset", "refused", "redirect", "drop"):
        server.mode = mode
        failed = await failure(model)
        seen += [str(failed), repr(failed), repr(failed.__cause__)]
        # As tools that report errors do: every frame with its variables. The texts are the caller's own variables.
        report = traceback.TracebackException.from_exception(failed, capture_locals=True)
        seen += [line.replace(f"KEY = '{KEY}'", "") for line in report.format() if "canary-key" in line]
    seen += [record.getMessage() for record in caplog.records]
    assert len(caplog.records) > 10, "httpx does log: what it logs was looked at"
    assert [text for text in seen if "canary" in text] == []
    assert repr(model) == f"<{provider} some-model-1.5>"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
names = st.sampled_from(
    ["choices", "message", "content", "text", "type", "usage", "candidates", "parts", "finishReason", "stop_reason"]
)
likely = st.recursive(
    json_values,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=3),
    max_leaves=12,
)


@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.differing_executors],
)
@given(raw=st.binary(max_size=200) | likely.map(lambda value: json.dumps(value).encode()))
async def test_any_body_is_a_failed_attempt_or_a_clean_text(server: Any, model: Any, raw: Any) -> None:
    server.mode, server.raw = "raw", raw
    with contextlib.suppress(ModelFailed):
        draft = await model.summarize(MESSAGES, None, 300)
        assert draft.text.strip()
        assert draft.text.encode()
        assert all(char in "\n\t" or ord(char) >= 0x20 for char in draft.text)


@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(text=st.text(st.characters(exclude_categories=[]), min_size=1, max_size=60))
async def test_any_text_of_a_model_comes_back_clean_or_not_at_all(server: Any, model: Any, text: Any) -> None:
    server.mode, server.text = "ok", text
    shown = [char for char in text if char.isprintable() and char != " "]
    try:
        draft = await model.summarize(MESSAGES, None, 300)
    except ModelFailed:
        assert not shown or any("\ud800" <= char <= "\udfff" for char in text)
    else:
        assert [char for char in draft.text if char.isprintable() and char != " "] == shown
