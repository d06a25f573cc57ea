"""What a memory knows of its Redis. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, repr=False)
class Health:
    """What a memory knows of its Redis, without asking it; and what it has accepted that is not in Redis yet."""

    state: str
    """The state of the circuit breaker. "closed": calls go to Redis. "open": it is away, and nobody waits for it.
    "half_open": it is away, and one call looks for it."""
    since_ms: int | None
    """Since when Redis has not answered, in milliseconds since 1970 by this machine's clock; None while closed."""
    reason: str
    """What happened to the last call or probe; "" while closed."""
    fallback: bool = False
    backlog_session_count: int = 0
    """Sessions with something that is still to be replayed."""
    backlog_message_count: int = 0
    """Messages of theirs; a change of the state alone counts as one."""
    backlog_bytes: int = 0
    away_nodes: tuple[str, ...] = ()
    """Nodes of a cluster that do not answer, by host and port; sessions on others are served all the same."""
    refused_session_count: int = 0
    """Sessions whose replay Redis refuses for now, such as a window that may not grow; tried again and again."""
    holds: tuple[str, ...] = ()
    """What the workers of this process look after for all pods, such as "summaries/openai"."""

    def __repr__(self) -> str:
        """Whether it is away and the state, then what there is of the rest."""
        shown = {"is_away": self.is_away}
        shown |= {each.name: value for each in fields(self) if (value := getattr(self, each.name))}
        return f"Health({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    @property
    def is_away(self) -> bool:
        """Whether Redis counts as away: calls fail at once, or with the fallback are served by this process."""
        return self.state != "closed"
