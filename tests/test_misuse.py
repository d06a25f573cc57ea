"""Wrong arguments of newcomers: a typed error says what is expected, and nothing is connected or written."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import redis
from support.stores import Store

import redismem.blocking
from redismem import InvalidMessage, InvalidSettings, Memory, Message, Settings
from redismem.blocking import memory as blocking
from redismem.workers.scheduler import Scheduler

SCHEDULER: Any = Scheduler  # untyped: it must refuse at run time what its types refuse
CONNECTS: list[Callable[..., Any]] = [Memory.connect, redismem.blocking.Memory.connect]


class WithoutCoroutine:
    def compact(self, messages: Any, previous: Any) -> None:
        raise AssertionError


class WithCoroutine:
    async def compact(self, messages: Any, previous: Any) -> Any:
        raise AssertionError


async def keep(session_id: str, context: Any) -> None:
    raise AssertionError


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "a port": ({"url": 6379}, "must be a string such as redis://127.0.0.1:6379/0, not one of the type int.*client="),
    "a URL in bytes": ({"url": b"redis://:CANARY@h"}, "not one of the type bytes"),
    "a client": ({"url": redis.Redis(password="CANARY")}, "of the type Redis; pass a redis-py client as client="),
    "settings in a dict": ({"settings": {"url": "CANARY"}}, r"settings is of type dict: pass Settings\(...\)"),
    "a number of workers": ({"workers": 4}, "workers must be True, False, or a callable.*not int"),
    "workers in words": ({"workers": "CANARY"}, "workers must be True, False.*not str"),
    "no workers": ({"workers": None}, "not NoneType"),
    "a class": ({"workers": partial(SCHEDULER, strategy=WithCoroutine)}, r"not a class: pass WithCoroutine\(...\)"),
    "no coroutine": (
        {"workers": partial(SCHEDULER, strategy=WithoutCoroutine())},
        "WithoutCoroutine has no `async def",
    ),
    "no strategy": ({"workers": partial(SCHEDULER, strategy="summarize")}, "str has no `async def compact"),
    "workers that a callable forgot to return": ({"workers": lambda store: None}, "returned None instead of workers"),
    "a setting as strategy": (
        {"workers": True, "strategy": "trim"},
        r"str has no `async def compact.*pass settings=Settings\(strategy=\.\.\.\)",
    ),
    "a strategy without workers": (
        {"strategy": WithCoroutine(), "on_evict": keep},
        "on_evict and strategy without workers would have no effect: pass workers=True",
    ),
    "an on_evict beside workers of one's own": (
        {"workers": SCHEDULER, "on_evict": keep},
        r"must be passed to your own workers, such as partial\(Scheduler, on_evict=\.\.\.\)",
    ),
    "a plain on_evict": ({"workers": True, "on_evict": print}, "must be an `async def on_evict"),
    "no summary at a time": (
        {"workers": True, "concurrency": 0},
        "concurrency must be a whole number from 1 to 10,000",
    ),
    "a concurrency in words": ({"workers": True, "concurrency": "CANARY"}, "must be a whole number"),
}


@pytest.mark.parametrize("connect", CONNECTS)
@pytest.mark.parametrize("name", MISTAKES)
def test_a_wrong_argument_of_connect_names_the_expected_one(connect: Callable[..., Any], name: str) -> None:
    given, said = MISTAKES[name]
    with pytest.raises(InvalidSettings, match=said) as refused:
        connect(**({"url": "memory://"} | given))
    assert "CANARY" not in str(refused.value)


def test_a_message_does_not_wrap_a_dict() -> None:
    with pytest.raises(InvalidMessage, match="pass a dict to append as it is"):
        Message({"role": "user", "content": "CANARY"})  # type: ignore[arg-type]


def test_a_timestamp_that_is_a_number_is_refused() -> None:
    with pytest.raises(InvalidMessage, match="timestamp must be a datetime with a time zone, not one of the type int"):
        Message("user", "x", timestamp=1_700_000_000)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("method", "option", "said"),
    [
        ("append", "wating", r"append\(\) has no option 'wating'; did you mean waiting\?"),
        (
            "append_and_read",
            "max_tokens",
            r"append_and_read\(\) has no option 'max_tokens': read\(max_tokens=...\) has it",
        ),
        ("append_and_read", "expct", r"append_and_read\(\) has no option 'expct'; did you mean expect\?"),
        ("append", "waiting_for_param", "did you mean waiting"),
        ("append", "idempotency_key", r"append\(\) has no option 'idempotency_key'; did you mean id\?$"),
        ("append", "ttl", r"'ttl': session\(id, policy=Policy\(idle_timeout_s=\.\.\.\)\) has it$"),
        ("append", "zzzzzz", r"append\(\) has no option 'zzzzzz'$"),
        ("update", "waiting_for_param", r"update\(\) has no option 'waiting_for_param'; did you mean waiting\?"),
        ("update", "expect", r"update\(\) has no option 'expect'$"),
    ],
)
async def test_an_unknown_option_is_named(store: Store, namespace: str, method: str, option: str, said: str) -> None:
    async with store.memory(namespace) as memory:
        session = memory.session("a")
        messages = () if method == "update" else ({"role": "user", "content": "x"},)
        with pytest.raises(TypeError, match=said):
            await getattr(session, method)(*messages, merge={"a": 1}, **{option: "CANARY"})
        assert not await session.exists()


@pytest.mark.parametrize("kind", [Memory, blocking.Memory])
@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("deadline_s", r"connect\(\) has no option 'deadline_s': pass settings=Settings\(deadline_s=\.\.\.\)$"),
        ("ttl", r"connect\(\) has no option 'ttl': pass settings=Settings\(idle_timeout_s=\.\.\.\)$"),
        ("namespce", r"connect\(\) has no option 'namespce'; did you mean namespace\?$"),
        ("qqqqqqq", r"connect\(\) has no option 'qqqqqqq'$"),
    ],
)
def test_an_unknown_option_of_connect_is_named_with_its_place(kind: Any, option: str, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        kind.connect("memory://", **{option: 1})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            [{"role": "user", "content": "CANARY"}],
            r"message 1: .* not a list: pass messages one by one, as in append\(",
        ),
        (
            ({"role": "user", "content": "CANARY"},),
            r"not a tuple: pass messages one by one, as in append\(\*messages\)$",
        ),
        ("CANARY", r"not a str: pass \{'role': 'user', 'content': \.\.\.\}$"),
        (5, "not a int$"),
    ],
)
async def test_messages_in_a_list_or_as_text_are_refused_with_the_right_form(
    store: Store, namespace: str, given: Any, said: str
) -> None:
    async with store.memory(namespace) as memory:
        session = memory.session("a")
        with pytest.raises(InvalidMessage, match=said) as refused:
            await session.append(given)
        assert "CANARY" not in str(refused.value)
        with pytest.raises(
            TypeError, match=r"has no option '(role|content)': pass a message, such as \{'role': 'user'"
        ):
            await session.append(role="user", content="CANARY")  # type: ignore[call-arg]
        assert not await session.exists()


async def test_a_type_error_of_a_callback_stays_unchanged(store: Store, namespace: str) -> None:
    def count_tokens(payload: Any) -> int:
        raise TypeError("of the counter")

    async with store.memory(namespace, count_tokens=count_tokens) as memory:
        with pytest.raises(TypeError, match="of the counter"):
            await memory.session("a").append({"role": "user", "content": "x"}, plan=1)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"treshold": 5}, r"^treshold is not a setting; did you mean threshold\?$"),
        ({"ttl": 60}, r"^ttl is not a setting; did you mean idle_timeout_s\?$"),
        ({"qqqqqqq": 5}, "^qqqqqqq is not a setting$"),
        ({"deadline_s": 500}, "^deadline_s: .* 120, in seconds$"),
        ({"reply_timeout_s": 1000}, "^reply_timeout_s: .* 120, in seconds$"),
        ({"max_sessions": 0}, "1$"),
    ],
)
def test_an_unknown_setting_is_named_with_a_suggestion(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidSettings, match=said):
        Settings(**given)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"idle_timeout_s": 86_400_000}, "sessions stay for 1000 days after their last activity"),
        ({"idle_timeout_s": 24}, "sessions stay for 24 s after their last activity"),
        ({"idle_timeout_s": 168}, "sessions stay for 168 s after their last activity"),
        ({"idle_timeout_s": 1_440}, "sessions stay for 1440 s after their last activity"),
        ({"idle_timeout_s": 10_080}, "sessions stay for 10080 s after their last activity"),
        ({"tick_s": 1_000}, "workers poll the queues every 1000 s, and a summary may be as late"),
        ({"extractive_after_s": 900_000}, "a session that no model summarises waits 10.4 days for a summary"),
    ],
)
def test_a_time_in_another_unit_gives_a_warning(
    caplog: pytest.LogCaptureFixture, given: dict[str, float], meant: str
) -> None:
    ((name, seconds),) = given.items()
    assert getattr(Settings(**given), name) == seconds
    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warned == [f"{name} (REDISMEM_{name.upper()}) is in seconds: {meant}"]


@pytest.mark.parametrize(
    "given",
    [
        *({"idle_timeout_s": seconds} for seconds in (60, 300, 1_800, 3_600, 86_400, 7 * 86_400, 400 * 86_400)),
        *({"tick_s": seconds} for seconds in (0.05, 5, 60)),
        *({"extractive_after_s": seconds} for seconds in (0, 60, 3_600, 86_400)),
    ],
)
def test_a_usual_time_gives_no_warning(caplog: pytest.LogCaptureFixture, given: dict[str, float]) -> None:
    Settings(**given)
    assert caplog.records == []


def test_a_variable_that_is_out_of_range_is_refused_with_its_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDISMEM_DEADLINE_S", "5000")
    with pytest.raises(InvalidSettings, match=r"REDISMEM_DEADLINE_S is invalid \(.* 120, in seconds\)"):
        Settings()


def test_a_model_without_tls_names_the_setting_that_permits_it() -> None:
    given = Settings(model_provider="openai", model="some-model", model_base_url="http://127.0.0.1:1/v1")
    with pytest.raises(InvalidSettings, match="model_allow_http, or REDISMEM_MODEL_ALLOW_HTTP=true, permits http://"):
        Memory.connect("memory://", settings=given, workers=True)


async def test_a_query_that_is_not_a_string_is_refused(memory: Memory) -> None:
    with pytest.raises(TypeError, match="query must be a string, not int"):
        await memory.session("a").recall(5)  # type: ignore[arg-type]
