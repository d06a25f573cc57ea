"""The figures of one play. No I/O."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

from redismem.cli.bench.offering import Open
from redismem.cli.tune.racing import Ratio, ratio

_LEAST_CACHED_TOKENS = 1_024
"""The shortest beginning that providers cache."""
_CACHED_PRICE, _OUTPUT_PRICE = 0.1, 8
"""The prices of a cached token and of a token of output, in tokens of input."""
_SLOW_SHARE = 0.01
"""The share of the slowest requests that the CPU of a request leaves out: they are pauses of the machine."""


@dataclass(slots=True)
class Figures:
    """The figures of one play."""

    sessions: int = 0
    messages: int = 0
    tokens: list[int] = field(default_factory=list)
    """The tokens of each request."""
    equal: list[int] = field(default_factory=list)
    """The tokens at the beginning of each request that equal the request before; 0 for the first one."""
    client_us: list[float] = field(default_factory=list)
    """The CPU time of this process per request, with the append of the reply."""
    trips: int = 0
    """The calls of all requests to Redis, with the append of the reply, as often as they were sent."""
    server_s: float | None = None
    """Redis' CPU time in the play, with summaries; `None` if it is unknown."""
    seconds: float = 0.0
    """The duration of the play."""
    idle_share: float = 0.0
    """The share of a core that Redis uses without the play."""
    later: float = 0.0
    """The weight of the words of later replies, and of those among them that the request contains."""
    later_held: float = 0.0
    answers: list[float] = field(default_factory=list)
    """The share of each marked answer's words that the request contains."""
    summaries: int = 0
    summary_input: int = 0
    summary_output: int = 0
    """The tokens of the summaries' texts and of what they summarise. A model's prompt comes on top."""
    stored_bytes: int | None = None
    opened: Open | None = None
    heats: list[tuple[float, float | None]] = field(default_factory=list)
    """The CPU time per request of each heat of a race, in this process and in Redis, in µs."""
    ratio: Ratio | None = None
    """The CPU of a turn as a multiple of that with the settings now, from a race; `None` without a race."""
    differences: list[tuple[int, str]] = field(default_factory=list)
    """The lines that did not come back identical or sound, and why."""

    @property
    def server_us(self) -> float | None:
        """Redis' CPU time per request, with the append of the reply and with summaries; `None` if it is unknown."""
        if self.heats:
            known = [server_us for _, server_us in self.heats if server_us is not None]
            return statistics.median(known) if known else None
        if self.server_s is None or not self.tokens:
            return None
        return max(0.0, self.server_s - self.idle_share * self.seconds) / len(self.tokens) * 1e6

    @property
    def words(self) -> float | None:
        return self.later_held / self.later if self.later else None

    @property
    def answered(self) -> float | None:
        return statistics.fmean(self.answers) if self.answers else None

    @property
    def held(self) -> float:
        """The share of later words, or the mean of this share and of the share of marked answers."""
        return statistics.fmean([each for each in (self.words, self.answered) if each is not None] or [0.0])

    @property
    def prefix(self) -> float:
        return sum(self.equal) / max(1, sum(self.tokens))

    @property
    def session_bytes(self) -> float | None:
        return None if self.stored_bytes is None else self.stored_bytes / max(1, self.sessions)

    @property
    def trips_per_turn(self) -> float:
        return self.trips / max(1, len(self.tokens))

    @property
    def cpu_us(self) -> float:
        """The CPU time of a request, in this process and in Redis."""
        return self.client() + (self.server_us or 0)

    def ratio_to(self, other: Figures) -> Ratio | None:
        """Return the CPU of a turn as a multiple of the other's, from the heats of one race; `None` without heats."""
        mine, others = ([client + (server or 0) for client, server in each.heats] for each in (self, other))
        return ratio(mine, others)

    def priced_tokens(self, *, with_model: bool) -> float:
        """Return the tokens of a request at the price of uncached input, with those of its share of summaries."""
        pairs = zip(self.tokens, self.equal, strict=True)
        cached = 1 - _CACHED_PRICE
        total = sum(tokens - cached * (equal if equal >= _LEAST_CACHED_TOKENS else 0) for tokens, equal in pairs)
        if with_model:
            total += self.summary_input + _OUTPUT_PRICE * self.summary_output
        return total / max(1, len(self.tokens))

    def client(self) -> float:
        """Return this process' CPU time per request in µs, without the slowest requests."""
        if self.heats:
            return statistics.median(client_us for client_us, _ in self.heats)
        ordered = sorted(self.client_us)
        return statistics.fmean(ordered[: max(1, round(len(ordered) * (1 - _SLOW_SHARE)))] or [0.0])
