"""Every failure is one failed attempt, with the facts the caller needs to decide on a retry."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import traceback
import tracemalloc
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.provider_server import HUGE_BYTES, MESSAGES, ProviderServer, catch_failure

from redismem.errors import ModelFailed, ProviderUnavailable
from redismem.messages.message import Message
from redismem.protocol.layout import REASON

KEY = "canary-key"


@pytest.mark.parametrize(
    ("mode", "permanent", "reason"),
    [
        ("400", True, "{} answered 400 context_length_exceeded"),
        ("413", True, "{} answered 413"),
        ("echo", True, "{} answered 422 INVALID"),
        ("garbage", False, "{} answered with something other than JSON in UTF-8"),
        ("not-utf8", False, "{} answered with something other than JSON in UTF-8"),
        ("surrogate", False, "{} answered with something other than JSON in UTF-8"),
        ("deep", False, "{} answered with something other than JSON in UTF-8"),
        ("nothing", False, "{} answered with something other than JSON in UTF-8"),
        ("null", False, "{} answered without a text"),
        ("empty", False, "{} answered with an empty text"),
        ("number", False, "text"),
        ("tool_calls", False, "text"),
        ("refused", True, "{} "),
        ("huge", False, "{} answered with more than 1048576 bytes"),
    ],
)
async def test_what_a_transcript_causes_is_one_failed_attempt(
    server: Any, model: Any, provider: Any, mode: Any, permanent: Any, reason: Any
) -> None:
    server.mode = mode
    failed = await catch_failure(model)
    assert type(failed) is ModelFailed
    assert failed.permanent == permanent
    assert reason.format(provider) in failed.reason
    assert REASON.fullmatch(failed.reason)
    assert len(server.asked) == 1, "one attempt is one request"
    server.mode = "ok"
    assert (await model.summarize(MESSAGES, None, 300)).text == server.text, "the next attempt finds the model usable"


@pytest.mark.parametrize(
    ("mode", "perhaps_request", "reason"),
    [
        ("401", False, "{} answered 401 invalid_api_key authentication_error"),
        ("403", False, "{} answered 403"),
        ("404", False, "{} answered 404 NOT_FOUND"),
        ("408", False, "{} answered 408"),
        ("429", False, "{} answered 429 rate_limit_error RESOURCE_EXHAUSTED"),
        ("quota", False, "{} answered 429 insufficient_quota"),
        ("gemini-key", False, "{} answered 400 INVALID_ARGUMENT API_KEY_INVALID"),
        ("redirect", False, "{} answered 307"),
        ("500", True, "{} answered 500 api_error"),
        ("502", True, "{} answered 502"),
        ("503", True, "{} answered 503 UNAVAILABLE"),
        ("529", True, "{} answered 529 overloaded_error"),
        ("reset", True, "{} did not answer (ReadError)"),
        ("drop", True, "{} did not answer (RemoteProtocolError)"),
        ("cut", True, "{} did not answer (RemoteProtocolError)"),
    ],
)
async def test_what_no_transcript_causes_is_the_providers(
    server: Any, model: Any, provider: Any, mode: Any, perhaps_request: Any, reason: Any
) -> None:
    server.mode = mode
    failed = await catch_failure(model)
    assert isinstance(failed, ProviderUnavailable)
    assert (failed.perhaps_request, failed.permanent, failed.retry_after_s) == (perhaps_request, False, None)
    assert failed.reason == failed.text == reason.format(provider)
    assert len(server.asked) == 1, "one attempt is one request"
    server.mode = "ok"
    assert (await model.summarize(MESSAGES, None, 300)).text == server.text, "the next attempt finds the model usable"


@pytest.mark.parametrize("mode", ["hang", "drip"])
async def test_the_whole_request_has_a_deadline(server: Any, open_chat_model: Any, mode: Any) -> None:
    server.mode = mode
    async with open_chat_model(timeout_s=0.2) as model:
        while "ConnectTimeout" in str(failed := await catch_failure(model)):
            pass  # a busy machine may not connect in time
        assert "did not answer within 0.2 s" in str(failed)
        assert isinstance(failed, ProviderUnavailable)
        assert failed.perhaps_request, "it may have been this text that it could not bear"
        server.mode = "ok"
        model._endpoint._timeout_s = 60  # it may be late again
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


async def test_nobody_listens(provider: Any, open_chat_model: Any) -> None:
    async with open_chat_model(base_url="http://127.0.0.1:1/v1") as model:
        failed = await catch_failure(model)
        assert isinstance(failed, ProviderUnavailable)
        assert failed.reason == f"{provider} did not answer (ConnectError)"
        assert not failed.perhaps_request


@pytest.mark.parametrize("provider", ["openai"], indirect=True)
async def test_a_reply_of_10_mb_is_not_taken_into_memory(server: Any, model: Any) -> None:
    server.modes.extend(["500", "half"])  # whoever wants to have all of it waits for ever
    server.raw = b'{"choices": "' + b"x" * HUGE_BYTES + b'"}'
    await catch_failure(model)
    tracemalloc.start()
    try:
        assert "more than" in str(await catch_failure(model))
        # The server, in this process too, holds a copy with headers.
        assert tracemalloc.get_traced_memory()[1] < HUGE_BYTES * 1.5
    finally:
        tracemalloc.stop()


async def test_text_cut_at_the_limit_is_kept(server: Any, model: Any) -> None:
    server.mode = "length"
    assert (await model.summarize(MESSAGES, None, 300)).text == "cut sho"


async def test_control_characters_are_removed(server: Any, model: Any) -> None:
    server.mode = "control"
    assert (await model.summarize(MESSAGES, None, 300)).text == "ab[31mcd\ne"


async def test_a_summary_over_its_cap_is_refused_but_a_reply_is_not(server: Any, open_chat_model: Any) -> None:
    server.text = "é" * 200
    async with open_chat_model(max_summary_bytes=399) as model:
        assert "400 bytes, 399 are allowed" in str(await catch_failure(model))
        assert await model.reply([{"role": "user", "content": "hi"}], max_tokens=9) == server.text
    async with open_chat_model(max_summary_bytes=400) as model:
        assert (await model.summarize(MESSAGES, None, 300)).text == server.text


async def test_nothing_of_the_environment_is_used(
    server: Any, open_chat_model: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    with ProviderServer() as proxy:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        (tmp_path / "netrc").write_text("machine 127.0.0.1 login someone password else\n")
        monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
        async with open_chat_model() as model:
            await model.summarize(MESSAGES, None, 300)
        assert len(server.asked) == 1
        assert proxy.asked == []
        assert "Basic" not in server.asked[0].headers.get("authorization", "")


async def test_a_client_of_the_callers_own_neither_follows_redirects_nor_changes_the_key(
    server: Any, open_chat_model: Any
) -> None:
    server.mode = "redirect"
    own = httpx.AsyncClient(follow_redirects=True, trust_env=False, auth=("someone", "else"))
    async with own as client, open_chat_model(client=client) as model:
        assert "307" in str(await catch_failure(model))
        assert len(server.asked) == 1
        await model.aclose()
        assert not client.is_closed, "it belongs to the caller"
        assert "Basic" not in server.asked[0].headers.get("authorization", "")


async def test_neither_key_nor_text_shows(server: Any, model: Any, provider: Any, caplog: Any) -> None:
    caplog.set_level(logging.DEBUG)
    seen = [repr(model), str(model), repr(await model.summarize([Message("user", "canary-text")], None, 300))]
    for mode in ("400", "401", "echo", "garbage", "reset", "refused", "redirect", "drop"):
        server.mode = mode
        failed = await catch_failure(model)
        seen += [str(failed), repr(failed), repr(failed.__cause__)]
        # As tools that report errors do: every frame with its variables. The texts are the caller's own variables.
        report = traceback.TracebackException.from_exception(failed, capture_locals=True)
        seen += [line.replace(f"KEY = '{KEY}'", "") for line in report.format() if "canary-key" in line]
    seen += [record.getMessage() for record in caplog.records]
    assert len(caplog.records) > 10, "httpx does log: what it logs was looked at"
    assert [text for text in seen if "canary" in text] == []
    assert repr(model) == f"<{provider} some-model-1.5>"


def is_clean(text: str) -> bool:
    """True if a text has words, UTF-8 encodes it, and no control characters are left."""
    return bool(text.strip() and text.encode()) and all(char in "\n\t" or ord(char) >= 0x20 for char in text)


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
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.differing_executors],
)
@given(raw=st.binary(max_size=200) | likely.map(lambda value: json.dumps(value).encode()))
async def test_any_body_is_a_failed_attempt_or_a_clean_text(server: Any, model: Any, raw: Any) -> None:
    server.mode, server.raw = "raw", raw
    with contextlib.suppress(ModelFailed):
        assert is_clean((await model.summarize(MESSAGES, None, 300)).text)


# All providers share the code that cleans a text, and `test_any_body…` plays the code that finds it.
@pytest.mark.parametrize(
    "provider",
    ["openai", pytest.param("gemini", marks=pytest.mark.nightly), pytest.param("anthropic", marks=pytest.mark.nightly)],
    indirect=True,
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
        assert is_clean(draft.text)
        assert [char for char in draft.text if char.isprintable() and char != " "] == shown
