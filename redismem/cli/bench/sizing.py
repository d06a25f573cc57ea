"""Size a deployment from measured figures: the sums of docs/scaling.md for turns."""

from __future__ import annotations

import math
from dataclasses import dataclass

CORE_SHARE = 0.7
"""The planned use of a core."""
MASTER_GB = 25
"""The data on one master."""


@dataclass(frozen=True, slots=True)
class Sizing:
    """The processes and masters for a load. `None` means that a figure is missing."""

    turns_per_s: float
    sessions: int
    processes: int
    """The processes that use the library."""
    redis_cores: float | None
    data_gb: float | None
    masters: int | None


def size(
    turns_per_s: float, sessions: int, client_us: float, server_us: float | None, session_bytes: float | None
) -> Sizing:
    """Return the sizing from the CPU time of a turn in the client and in Redis, and the bytes of a session."""
    processes = max(1, math.ceil(turns_per_s * client_us / 1e6 / CORE_SHARE))
    cores = None if server_us is None else turns_per_s * server_us / 1e6
    data_gb = None if session_bytes is None else sessions * session_bytes / 1e9
    masters = None
    if cores is not None and data_gb is not None:
        masters = max(1, math.ceil(cores / CORE_SHARE), math.ceil(data_gb / MASTER_GB))
    return Sizing(turns_per_s, sessions, processes, cores, data_gb, masters)
