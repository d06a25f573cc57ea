"""The policy of a session, as the counters contain it. No I/O."""

from __future__ import annotations

import math
import re

from redismem.context.info import Policy
from redismem.errors import InvalidSettings
from redismem.messages.zones import check_zone
from redismem.settings.environment import LONGEST_S

_PARTS = re.compile("b?(w?)(x?)([0-9]*)")


def encode_policy(policy: Policy) -> str:
    """Return the part of the counters about a policy, without its mark; "" if the policy sets nothing.

    Raises:
        InvalidSettings: the policy has a value of the wrong type, its timeout is out of range, or its zone is unknown.
    """
    if not isinstance(policy, Policy):
        raise InvalidSettings(f"a policy is a redismem.Policy, not one of the type {type(policy).__name__}")
    if type(policy.keep_whole) is not bool or type(policy.exempt) is not bool:
        raise InvalidSettings("keep_whole and exempt of a policy are True or False")
    check_zone(policy.zone)
    timeout_s = policy.idle_timeout_s
    kept_ms = ""
    if timeout_s is not None:
        is_number = isinstance(timeout_s, int | float) and not isinstance(timeout_s, bool)
        if not is_number or not math.isfinite(timeout_s) or not 0.001 <= timeout_s <= LONGEST_S:
            raise InvalidSettings(f"idle_timeout_s of a policy is a number of seconds, 0.001 to {LONGEST_S}")
        kept_ms = str(int(timeout_s * 1000))
    return "w" * policy.keep_whole + "x" * policy.exempt + kept_ms


def decode_policy(encoded: str, zone: str | None = None) -> Policy:
    """Return the policy that this part of the counters and the zone describe."""
    match = _PARTS.fullmatch(encoded)
    assert match is not None
    kept_ms = match[3]
    return Policy(bool(match[1]), int(kept_ms) / 1000 if kept_ms else None, bool(match[2]), zone)
