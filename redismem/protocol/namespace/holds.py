"""Calls about who of all pods looks at the queues. No I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from redismem.events import Op
from redismem.protocol import replies, scripts
from redismem.protocol.call import Call, evalsha
from redismem.protocol.clock import Clock, time_argument
from redismem.protocol.keys import Keys

_KEEP_MS = 86_400_000
"""Holds of works that nobody does any more go after this time."""
_HOLD = re.compile(r"(\d{1,16}) (crowded|quiet) ([!-~]{1,160})")


@dataclass(frozen=True, slots=True)
class Hold:
    """Who does a work for all pods, until when at least, and whether it is more than that one can do at once."""

    holder: str
    until_ms: int
    is_crowded: bool


def hold(
    keys: Keys, clock: Clock | None, holder: str, hold_ms: int, works: Mapping[str, bool]
) -> Call[dict[str, Hold]]:
    """Holds each of these works that nobody else holds, and says of it whether it is crowded. Gives who holds them.

    `hold_ms` 0: gives up those that this one holds. A work whose hold cannot be read is not in the answer. Raises
    InvalidTime for what the clock may not give.
    """
    script = scripts.load("hold")
    said = [word for work, is_crowded in works.items() for word in (work, "crowded" if is_crowded else "quiet")]
    command = evalsha(script, (keys.ticks,), (time_argument(clock), holder, hold_ms, _KEEP_MS, *said))

    def decode(reply: Any) -> dict[str, Hold]:
        return _known(dict(zip(works, reply, strict=True)))

    return Call(None, (command,), decode, script, op=Op.HOLD)


def holds(keys: Keys) -> Call[dict[str, Hold]]:
    """Who holds what, or has held it last."""

    def decode(answer: Any) -> dict[str, Hold]:
        found = replies.fields(answer)
        return _known({work.decode("utf-8", "replace"): found[work] for work in sorted(found)})

    return Call(None, (("HGETALL", keys.ticks),), decode)


def _known(found: Mapping[str, bytes]) -> dict[str, Hold]:
    matches = {work: _HOLD.fullmatch(said.decode("ascii", "replace")) for work, said in found.items()}
    return {work: Hold(match[3], int(match[1]), match[2] == "crowded") for work, match in matches.items() if match}
