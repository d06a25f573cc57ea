"""What the faults of a campaign came to, and the table of it."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field


@dataclass(slots=True)
class Row:
    """What a kind of fault came to."""

    injected: int = 0
    acked: int = 0
    hit_s: float = 0.0
    healthy_s: float = 0.0
    lost: int = 0


@dataclass(slots=True)
class Fault:
    """One that was injected. `slots`: of the node that was hit."""

    kind: str
    begun_s: float
    ended_s: float
    slots: set[int] = field(repr=False)


def show(title: str, rows: dict[str, Row]) -> None:
    """Prints a row a kind."""
    head = "injected, acknowledged, lost, doubled, torn, longest stall of the hit shards, of the healthy ones"
    lines = [f"\n{title}: {head}"]
    for kind, row in rows.items():
        stalls = f"{row.hit_s:.1f} s | {row.healthy_s:.1f} s"
        lines.append(f"| {kind} | {row.injected} | {row.acked} | {row.lost} | 0 | 0 | {stalls} |")
    sys.stdout.write("\n".join(lines) + "\n")
