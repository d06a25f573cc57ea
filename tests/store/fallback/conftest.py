"""A Redis that is back is soon found: probes of the fallback's tests have short pauses."""

from __future__ import annotations

import pytest

from redismem.store import breaker


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the pauses between probes at the first one, which would grow to two seconds."""
    monkeypatch.setattr(breaker, "LONGEST_PAUSE_S", breaker.FIRST_PAUSE_S)
