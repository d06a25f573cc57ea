"""The listeners of a channel, and the pauses between attempts. No server."""

from __future__ import annotations

import random

import pytest
from support.subscribed import Hearer

from redismem.transport.subscriptions import channel as channels
from redismem.transport.subscriptions.channel import Channel, Pauses


class Broken(Hearer):
    """A listener that fails, with an error that quotes the message."""

    def on_message(self, payload: bytes) -> None:
        raise KeyError(payload)

    def on_gap(self) -> None:
        raise KeyError


def test_a_listener_that_fails_is_logged_once_and_keeps_no_other_waiting(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "_logged", set())
    channel, other = Channel(b"a"), Hearer()
    channel.listeners = {Broken(): None, other: None}
    channel.deliver(b"secret")
    channel.deliver(b"more")
    channel.confirm()
    assert (other.payloads, other.gaps_count) == ([b"secret", b"more"], 1)
    assert [record.getMessage() for record in caplog.records] == ["a listener to a channel failed with KeyError"]


def test_a_channel_tells_its_loss_once_and_only_if_it_was_on() -> None:
    channel, hearer = Channel(b"a"), Hearer()
    channel.listeners = {hearer: None}
    channel.fail()
    assert hearer.gaps_count == 0, "it is polled already"
    channel.confirm()
    channel.lose()
    assert hearer.gaps_count == 1, "the next attempt tells"
    channel.fail()
    channel.fail()
    assert hearer.gaps_count == 2


def test_pauses_grow_to_a_second_and_attempts_that_fail_together_share_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "uniform", lambda low, high: high)
    pauses, now, lengths = Pauses(), 100.0, []
    for _ in range(10):
        until = pauses.begin(now)
        assert pauses.begin(now) == pauses.begin(until - 0.001) == until
        lengths.append(round(until - now, 3))
        now = until
    assert lengths == [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1, 1, 1]
