"""The kind of a summary's failure, and the advice that the doctor, the list of dead sessions and the page give."""

from __future__ import annotations

import pytest

from redismem.inspection.work_rules import FailureFacts, dead, failure_kind


@pytest.mark.parametrize(
    ("reason", "kind", "advice"),
    [
        ("openai answered 401 invalid_api_key", "refuses the key", "REDISMEM_MODEL_API_KEY"),
        ("gemini answered 404", "does not know the model", "REDISMEM_MODEL_BASE_URL"),
        ("openai answered 400 context_length_exceeded", "refuses the request", "longer requests"),
        ("anthropic refused to answer", "refuses the text", "another model"),
        ("openai answered 503 overloaded", "is down", "status page"),
        ("openai did not answer (ConnectError)", "is down", "status page"),
        ("OSError ENOSPC", "strategy failed", "logs"),
        (None, "strategy failed", "logs"),
    ],
)
def test_each_kind_of_failure_has_advice(reason: str | None, kind: str, advice: str) -> None:
    told = failure_kind(reason)
    assert kind in told.name
    assert advice in told.advice
    assert dead(1, FailureFacts(0, 1, reason), 1_000).advice.startswith(told.advice)
