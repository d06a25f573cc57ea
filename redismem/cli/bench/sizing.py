"""Size a deployment from measured figures: the sums of docs/scaling.md."""

from __future__ import annotations

import math
from dataclasses import dataclass

from redismem.settings.settings import Settings

CORE_SHARE = 0.7
"""The planned use of a core."""
MASTER_GB = 25
"""The data on one master."""
# Of docs/scaling.md, where a bench measures nothing.
SUMMARY_SERVER_US, SUMMARY_MS = 86, 5.4
SKETCH_KIB, KEPT_SHARE = 1.2, 0.44
_TOKEN_BYTES = 4


@dataclass(frozen=True, slots=True)
class Load:
    """The load to size for."""

    turns_per_s: float
    sessions: int
    session_messages: int
    """The messages that a session has had."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Measured costs. `None` means that a figure is missing."""

    client_us: float
    server_us: float | None
    """The CPU of a turn in the client and in Redis."""
    turn_messages: float
    message_bytes: float | None
    """A message in Redis, all included."""
    raw_bytes: float
    """The same message as text."""


@dataclass(frozen=True, slots=True)
class Sizing:
    """The processes and masters for a load. `None` means that a figure is missing."""

    processes: int
    """The processes that use the library."""
    workers: int
    """The worker processes for extractive summaries."""
    redis_cores: float | None
    session_bytes: float | None
    data_gb: float | None
    masters: int | None


def size(load: Load, costs: Costs, settings: Settings) -> Sizing:
    """Return the sizing for a load with these settings, of which the strategy decides what is kept."""
    summarizes = settings.strategy == "summarize" and load.session_messages > settings.threshold
    cut = settings.threshold + 1 - settings.recent_limit
    summaries_per_s = load.turns_per_s * costs.turn_messages / cut if summarizes else 0.0
    is_extractive = settings.model_provider == "extractive"
    cores = session_bytes = data_gb = masters = None
    if costs.server_us is not None:
        cores = (load.turns_per_s * costs.server_us + summaries_per_s * SUMMARY_SERVER_US) / 1e6
    if costs.message_bytes is not None:
        session_bytes = _session_bytes(load, costs.message_bytes, costs.raw_bytes, settings)
        data_gb = load.sessions * session_bytes / 1e9
    if cores is not None and data_gb is not None:
        masters = max(1, math.ceil(cores / CORE_SHARE), math.ceil(data_gb / MASTER_GB))
    return Sizing(
        processes=max(1, math.ceil(load.turns_per_s * costs.client_us / 1e6 / CORE_SHARE)),
        workers=math.ceil(summaries_per_s * SUMMARY_MS / 1000 / CORE_SHARE) if is_extractive else 0,
        redis_cores=cores,
        session_bytes=session_bytes,
        data_gb=data_gb,
        masters=masters,
    )


def _session_bytes(load: Load, message_bytes: float, raw_bytes: float, settings: Settings) -> float:
    if settings.strategy == "none":
        return load.session_messages * message_bytes
    left_count = max(0, load.session_messages - settings.threshold)
    live_bytes = (load.session_messages - left_count) * message_bytes
    if settings.strategy == "summarize" and left_count:
        live_bytes += _TOKEN_BYTES * settings.summary_tokens_total + 1024 * SKETCH_KIB
    return live_bytes + (left_count * raw_bytes * KEPT_SHARE if settings.keep_originals else 0)
