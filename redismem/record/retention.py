"""The policy of a record: how long it, or its checkpoints, are kept. Workers apply it.

A policy is a field of the record, so any worker applies it, whoever wrote the record. Without one, nothing goes.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from typing import Literal

from redismem.errors import InvalidRecord
from redismem.protocol.record.changes import Change
from redismem.protocol.record.sweeps import POLICY
from redismem.settings.environment import LONGEST_S

Kind = Literal["agent-framework", "claude-agent-sdk", "google-adk", "langgraph", "pydantic-ai", "strands"]
"""The adapter whose layout the record has."""
_MOST_COUNT = 1_000


@dataclass(frozen=True, slots=True)
class Retention:
    """A policy: whatever is too old, or beyond the newest ones, goes. The newest checkpoint always stays.

    Raises:
        InvalidRecord: A value is out of range.
    """

    kind: Kind
    keep_last: int | None = None
    """The newest checkpoints of a namespace or workflow, or conversations of an owner: 1 to 1,000. `None` keeps all."""
    max_age_s: float | None = None
    """The greatest age in seconds. `None` means any age."""

    def __post_init__(self) -> None:
        keep_last, max_age_s = self.keep_last, self.max_age_s
        if keep_last is not None and (type(keep_last) is not int or not 1 <= keep_last <= _MOST_COUNT):
            raise InvalidRecord(f"keep_last is an integer, from 1 to {_MOST_COUNT:,}")
        is_number = isinstance(max_age_s, int | float) and not isinstance(max_age_s, bool)
        if max_age_s is not None and not (is_number and 0.001 <= max_age_s <= LONGEST_S):
            raise InvalidRecord(f"max_age is a number of seconds, 0.001 to {LONGEST_S}")

    def add_to(self, change: Change, *, is_ranked: bool = False) -> Change:
        """Return the change with this policy, in place of the record's earlier one.

        Args:
            change: The change.
            is_ranked: True also notes the time, if the policy counts records: the last written ones are the newest.
        """
        if self.keep_last is None and self.max_age_s is None:
            return replace(change, drops=[*change.drops, POLICY])
        policy = {"kind": self.kind, "keep_last": self.keep_last, "max_age_s": self.max_age_s}
        updated_us = time.time_ns() // 1_000 if is_ranked and self.keep_last is not None else change.updated_us
        return replace(change, sets={**change.sets, POLICY: json.dumps(policy).encode()}, updated_us=updated_us)
