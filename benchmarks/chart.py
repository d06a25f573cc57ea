"""Draw the results of `benchmarks.peers` as bars: python -m benchmarks.chart peers.json peers.svg

With `--libraries`, the chart has one bar per library: the variants of redismem's own transport are left out.
"""

from __future__ import annotations

import argparse
import json
from html import escape
from pathlib import Path
from typing import Any

_WIDTH, _LEFT, _RIGHT, _TOP, _STEP, _BAR = 860, 270, 60, 84, 34, 22
_OURS, _OTHERS, INK, SOFT = "#0f766e", "#94a3b8", "#1e293b", "#64748b"
_LANE = "redismem, lane"
_VARIANTS = (
    "redismem, redis-py",
    "valkey-glide, same scripts",
    "coredis, same scripts",
    "LangChain, an object per request",
)
_NAMES = {
    _LANE: "redismem",
    "redis-py, careful": "redis-py by hand, two MULTI",
    "LangChain RedisChatMessageHistory": "LangChain RedisChatMessageHistory",
}


def draw(result: dict[str, Any], *, libraries: bool = False) -> str:
    """Return an SVG with one bar per side, as long as its turns per second, and a line at the limit of Redis' core."""
    rows, around = result["rows"], result["surroundings"]
    (lane,) = (row for row in rows if row["label"] == _LANE)
    limit = lane["turns_per_s"] / lane["server_share"]
    if libraries:
        rows = [
            row | {"label": _NAMES.get(row["label"], row["label"])} for row in rows if row["label"] not in _VARIANTS
        ]
    most = max(limit, *(row["turns_per_s"] for row in rows))
    bottom = _TOP + _STEP * len(rows)
    height = bottom + 54
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" role="img">',
        "<title>Turns per second, redismem and others</title>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        draw_text(20, 28, "Turns per second: one process, 64 concurrent sessions", 17, weight="bold"),
        draw_text(20, 47, "append a user message, read the context, append the answer; longer is better", 12, SOFT),
        *_limit(limit / most, limit, bottom),
    ]
    for number, row in enumerate(rows):
        parts += _bar(row, _TOP + _STEP * number, row["turns_per_s"] / most)
    where = f"{around['machine']} (load {around['load']}); {around['server'].partition(',')[0]} on loopback"
    parts.append(draw_text(20, height - 26, where, 11, SOFT))
    versions = f"Python {around['python']}; {around['versions']}; {around['command'].partition(' --')[0]}"
    parts.append(draw_text(20, height - 10, versions, 11, SOFT))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _limit(share: float, turns_per_s: float, bottom: int) -> list[str]:
    x = _LEFT + share * (_WIDTH - _LEFT - _RIGHT)
    return [
        f'<line x1="{x:.1f}" y1="{_TOP - 8}" x2="{x:.1f}" y2="{bottom - 6}" stroke="{SOFT}" stroke-dasharray="4 4"/>',
        draw_text(x, _TOP - 14, f"limit of Redis' core with redismem's scripts: {turns_per_s:,.0f}", 11, SOFT, "end"),
    ]


def _bar(row: dict[str, Any], top: int, share: float) -> list[str]:
    is_ours = row["label"].startswith("redismem")
    length = max(1.0, share * (_WIDTH - _LEFT - _RIGHT))
    figure = f"{row['turns_per_s']:,.0f}"
    if row["ratio"] != 1:
        figure += f"  (redismem is {row['ratio']:.3g} times as fast)"
    middle = top + _BAR - 6
    # The figure of the longest bar is inside the bar, because the line of the limit is right behind it.
    inside = share > 0.8
    end = _LEFT + length - 8 if inside else _LEFT + length + 8
    return [
        draw_text(_LEFT - 10, middle, row["label"], 13, anchor="end", weight="bold" if is_ours else "normal"),
        f'<rect x="{_LEFT}" y="{top}" width="{length:.1f}" height="{_BAR}" fill="{_OURS if is_ours else _OTHERS}"/>',
        draw_text(end, middle, figure, 12, "#ffffff" if inside else INK, "end" if inside else "start"),
    ]


def draw_text(
    x: float, y: float, text: str, size: int, colour: str = INK, anchor: str = "start", weight: str = "normal"
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:g}" font-size="{size}" fill="{colour}" text-anchor="{anchor}" font-weight="{weight}">'
        f"{escape(text)}</text>"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.chart", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path, help="what peers wrote with --json")
    parser.add_argument("drawing", type=Path, help="the SVG to write")
    parser.add_argument("--libraries", action="store_true", help="one bar per library")
    asked = parser.parse_args()
    asked.drawing.write_text(draw(json.loads(asked.results.read_text()), libraries=asked.libraries))


if __name__ == "__main__":
    main()
