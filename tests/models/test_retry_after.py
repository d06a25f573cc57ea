"""The pause that a provider asks for, and its permission to repeat the request."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.provider_server import catch_failure, http_date_in

from redismem.errors import ProviderUnavailable
from redismem.models.http import MAX_WAIT_S, retry_after_s


@pytest.mark.parametrize(
    ("mode", "headers", "wait_s"),
    [
        ("429", {"retry-after": "7"}, 7.0),
        ("429", {"retry-after": "0.25"}, 0.25),
        ("429", {"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ("429", {"retry-after": http_date_in(-3600)}, 0.0),
        ("429", {"retry-after": "3601"}, MAX_WAIT_S),
        ("429", {"retry-after": "inf"}, MAX_WAIT_S),
        ("429", {"retry-after": http_date_in(90_000)}, MAX_WAIT_S),
        ("429", {"retry-after": "soon"}, None),
        ("429", {"retry-after": "-5"}, None),
        ("429", {"retry-after": "nan"}, None),
        ("503", {"retry-after": "3"}, 3.0),
        ("500", {"x-should-retry": "false"}, None),
    ],
)
async def test_the_pause_that_a_provider_asks_for_is_handed_on(
    server: Any, model: Any, mode: Any, headers: Any, wait_s: Any
) -> None:
    server.mode, server.headers = mode, headers
    failed = await catch_failure(model)
    assert isinstance(failed, ProviderUnavailable)
    assert failed.retry_after_s == wait_s


@pytest.mark.parametrize(("word", "permanent"), [("true", False), ("false", True), ("maybe", True)])
async def test_a_refused_request_may_be_repeated_if_the_provider_says_so(
    server: Any, model: Any, word: Any, permanent: Any
) -> None:
    server.mode, server.headers = "400", {"x-should-retry": word}
    assert (await catch_failure(model)).permanent == permanent


async def test_retry_after_as_a_date(server: Any, model: Any) -> None:
    server.mode, server.headers = "429", {"retry-after": http_date_in(60)}
    failed = await catch_failure(model)
    assert failed.retry_after_s is not None
    assert 0 < failed.retry_after_s <= 60
    assert isinstance(failed, ProviderUnavailable)


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
