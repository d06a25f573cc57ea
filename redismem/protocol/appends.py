"""An append as a record: its command is built from it, and the fallback and events read it. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from operator import attrgetter
from typing import NamedTuple

from redismem.protocol import layout, scripts
from redismem.protocol.ids import renew
from redismem.protocol.keys import SessionKeys
from redismem.protocol.ring import NAME_BYTES
from redismem.protocol.scripts import Script
from redismem.settings.settings import Settings

Command = tuple[bytes | str | int, ...]
ANY = "@"
"""The argument `expect` that expects nothing, and has the epoch in the reply; `layout.NONE` leaves it out."""
_AGAIN = {"1": "2", "2": "2", "0": "3", "3": "3"}
"""The values of `fresh` of a resent append."""


class Limits(NamedTuple):
    """The argument `limits` of append.lua, and what it says of a session that the append creates."""

    text: bytes
    policy: str = ""
    """The policy, as the counters contain it without its mark."""
    zone: bytes = b""
    """The time zone; empty means UTC."""


def append_limits(settings: Settings, policy: str = "", zone: str | None = None) -> Limits:
    """Encode the limits for append.lua: several numbers in one argument, because each argument costs time.

    `policy` is the policy of a new session, as the counters contain it without its mark, and `zone` its time zone.
    """
    values = {
        "kept_ms": settings.kept_ms,
        "threshold": settings.overdue_count,
        "token_limit": settings.overdue_tokens,
        "recent_limit": settings.recent_limit,
        "window_limit": settings.max_window_count,
        "params_limit": settings.max_params_count,
        "bytes_limit": settings.max_window_bytes,
    }
    words = [str(values[name]) for name in scripts.values_in("append", "limits")]
    words += [layout.encode_policy(policy).decode()] if policy else []
    words += [] if zone is None else [f"%{zone}"]
    return Limits(" ".join(words).encode(), policy, (zone or "").encode())


def pins_argument(settings: Settings, more_count: int, more_bytes: int) -> str:
    """Encode the argument `pins`: how many messages and bytes become pinned (negative: unpinned), and both limits."""
    return f"{more_count},{more_bytes},{settings.max_pinned_count},{settings.max_pinned_bytes}"


@dataclass(frozen=True, slots=True)
class StateChange:
    """The fields of the state to set, with encoded values, and the fields to drop."""

    sets: tuple[bytes, ...] = ()
    """field, value, field, value …"""
    drops: tuple[bytes, ...] = ()


NO_CHANGE = StateChange()


@dataclass(slots=True)
class AppendHead:
    """The part that all appends of a caller to a session share."""

    keys: SessionKeys
    settings: Settings
    limits: Limits
    command: Command
    """The beginning of the command."""


def append_head(
    script: Script, keys: SessionKeys, settings: Settings, limits: Limits, *more: bytes | str
) -> AppendHead:
    """Build the shared part. With an owner, the command has the index of owners as one more key, if its script has it.

    `more` are the arguments of a turn, which follow the limits.
    """
    owned, plain = _getters(script.name)
    names, text = plain(keys), limits.text
    if keys.owner is not None:
        names, text = owned(keys), b"%b @%b" % (text, keys.owner)
    return AppendHead(keys, settings, limits, ("EVALSHA", script.sha, len(names), *names, keys.session, text, *more))


@cache
def _getters(script: str) -> tuple[Callable[[SessionKeys], tuple[bytes, ...]], ...]:
    """Return functions that return the keys of an append with an owner, and without, in the order of the head."""
    own = SessionKeys.__dataclass_fields__.keys() - {"owner"}
    names = [name if name in own else f"shard.{name}" for name in scripts.load(script).keys]
    return attrgetter(*names), attrgetter(*(name for name in names if name != "shard.owners"))


@dataclass(slots=True)
class Append:
    """An append, or a change of the state alone."""

    head: AppendHead
    token: bytes
    elements: Sequence[bytes]
    """The messages, without their stamps."""
    tokens: int
    """The tokens of the messages that are not pinned."""
    expect: str = ANY
    """The last seq, the epoch and the newest append that the caller has seen, as `expect_argument` encodes them."""
    now_ms: int | None = None
    """The time of the stamp; None means the server's clock."""
    pinned_count: int = 0
    pinned_bytes: int = 0
    fresh: str = "1"
    """1 if this append cannot have been made before, 0 if it may have been; 2 and 3 are the same for a resent one."""
    change: StateChange | None = None
    """The change of the state; None means that there is none."""

    @property
    def name(self) -> bytes:
        """The seven bytes that name the append."""
        return self.token[:NAME_BYTES]

    @property
    def has_expect(self) -> bool:
        """True if the caller gave `expect`, and only Redis can check it."""
        return self.expect[0].isdigit()

    @property
    def parts(self) -> tuple[bytes, ...]:
        """The messages, and the fields and values of the change."""
        change = self.change or NO_CHANGE
        return (*self.elements, *change.sets, *change.drops)

    @property
    def size_bytes(self) -> int:
        """The bytes that the append would store."""
        return sum(map(len, self.parts))

    def command(self) -> Command:
        """Build the command of append.lua. A test compares the values in `request` with its head."""
        head, elements, change = self.head, self.elements, self.change
        if change is None and self.now_ms is None and not self.pinned_count:  # most appends: as below, but faster
            request = f"{self.fresh} {len(elements)} 0 {self.tokens} {self.expect} - -"
            return (*head.command, request, self.token, *elements)
        sets, drops = (change.sets, change.drops) if change is not None else ((), ())
        now = layout.NONE if self.now_ms is None else self.now_ms
        pins = pins_argument(head.settings, self.pinned_count, self.pinned_bytes) if self.pinned_count else layout.NONE
        request = f"{self.fresh} {len(elements)} {len(sets) // 2} {self.tokens} {self.expect} {now} {pins}"
        return (*head.command, request, self.token, *elements, *sets, *drops)

    def again(self, *, is_sent: bool) -> Append:
        """Return the append marked as resent, because the server may have it already.

        If it was sent before, it also gets a new sending, which overtakes the earlier ones.
        """
        token = renew(self.token) if is_sent else self.token
        return replace(self, fresh=_AGAIN[self.fresh], token=token)
