"""Calls about holds: which pod polls a queue for all pods, and which pods tick. No I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from redismem.events import Op
from redismem.protocol import replies
from redismem.protocol.call import Call, script_call
from redismem.protocol.clock import Clock, time_argument
from redismem.protocol.keys import Keys
from redismem.protocol.namespace.calls import name_of, scored_members

_KEEP_MS = 86_400_000
"""The time to live of holds that no pod renews, and of the time of the last tick."""
_PROCESSES_COUNT = 1_000
_TIME = re.compile(rb"\d{1,16}")
_HOLD = re.compile(r"(\d{1,16}) (crowded|quiet) ([!-~]{1,160})")


@dataclass(frozen=True, slots=True)
class Hold:
    """The pod that does a work for all pods, the end of its hold, and True if one run could not finish the work."""

    holder: str
    until_ms: int
    is_crowded: bool


@dataclass(frozen=True, slots=True)
class Ticking:
    """The pods that tick, and the current or last hold of each work."""

    holds: Mapping[str, Hold]
    processes: Mapping[str, int]
    """The time until which each pod counts as running, by its name; at most 1,000 pods."""
    last_ms: int | None
    """The time of the last tick of any leader. `None` means that no pod has ticked within a day."""
    recent_ms: int | None = None
    """The time at which the session limit last evicted sessions active within an hour before."""


def hold(
    keys: Keys, clock: Clock | None, holder: str, hold_ms: int, works: Mapping[str, bool]
) -> Call[dict[str, Hold]]:
    """Build a call that takes or renews the hold of each work, unless another pod has it.

    The call returns the current hold of each work, except unreadable holds. `works` maps each work to True if the work
    is crowded. `hold_ms` 0 gives up the holds of `holder`.

    Raises:
        InvalidTime: the clock returned an invalid time.
    """
    named = {"now_ms": time_argument(clock), "holder": holder, "hold_ms": hold_ms, "keep_ms": _KEEP_MS}
    words = [word for work, is_crowded in works.items() for word in (work, "crowded" if is_crowded else "quiet")]

    def decode(reply: Any) -> dict[str, Hold]:
        return _parse_holds(dict(zip(works, reply, strict=True)))

    return script_call(Op.HOLD, keys, decode, named, more=words)


def note_recent(keys: Keys, now_ms: int) -> Call[None]:
    """Build a call that notes that the session limit evicts sessions that were active within an hour before."""
    commands = (("HSET", keys.ticks, "recent", now_ms), ("PEXPIRE", keys.ticks, _KEEP_MS))
    return Call(None, commands, lambda *_: None, op=Op.HOLD)


def ticking(keys: Keys) -> Call[Ticking]:
    """Build a call that reads the current or last hold of each work, and the pods that tick."""

    def decode(answer: Any, listed: Any) -> Ticking:
        fields = replies.fields(answer)
        last = _TIME.fullmatch(fields.get(b"last", b""))
        processes = {name_of(member): score for member, score in scored_members(listed)}
        works = {work.decode("utf-8", "replace"): fields[work] for work in sorted(fields)}
        recent = _TIME.fullmatch(fields.get(b"recent", b""))
        return Ticking(
            _parse_holds(works), processes, int(last[0]) if last else None, int(recent[0]) if recent else None
        )

    listing = ("ZRANGEBYSCORE", keys.processes, 0, "+inf", "WITHSCORES", "LIMIT", 0, _PROCESSES_COUNT)
    return Call(None, (("HGETALL", keys.ticks), listing), decode, is_separable=True)


def _parse_holds(values: Mapping[str, bytes]) -> dict[str, Hold]:
    matches = {work: _HOLD.fullmatch(value.decode("ascii", "replace")) for work, value in values.items()}
    return {work: Hold(match[3], int(match[1]), match[2] == "crowded") for work, match in matches.items() if match}
