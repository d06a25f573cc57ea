"""Draw the results of `benchmarks.budgets` as lines: python -m benchmarks.curves budgets.json budgets.svg"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from benchmarks.chart import INK, SOFT, draw_text

_WIDTH, _HEIGHT = 900, 460
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 190, 80, 90
_COLOURS = ("#0b6e6e", "#b3541e", "#5b4bb3", "#1f7a2e", "#a3245c", "#46525e", "#8a6d00")
_DASHES = ("", "7 4", "2 4", "10 4 2 4")
_LABEL = 15
"""The least distance of two labels."""


def draw(result: dict[str, Any], total: int) -> str:
    """Return an SVG of the words of later answers by the summary's share of this total."""
    rows = sorted((row for row in result["words"] if row["summary"] + row["recall"] == total), key=_summary)
    around, names = result["surroundings"], list(result["questions"])
    title = f"Words of later answers in the context, by the summary's part of {total:,} tokens; the rest is recall"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        'role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        draw_text(20, 30, "Summary or recall?", 17, INK, "start"),
        draw_text(20, 52, title, 12, SOFT, "start"),
    ]
    for tenth in range(0, 11, 2):
        y = _y(tenth / 10)
        parts.append(f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH - _RIGHT}" y2="{y:.1f}" stroke="#dde1e5"/>')
        parts.append(draw_text(_LEFT - 8, y + 4, f"{tenth / 10:.1f}", 11, SOFT, "end"))
    for row in rows:
        label = f"{row['summary']:,} + {row['recall']:,}"
        parts.append(draw_text(_x(row["summary"] / total), _HEIGHT - _BOTTOM + 20, label, 11, SOFT, "middle"))
    parts.append(
        draw_text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - _BOTTOM + 40, "summary + recall", 11, SOFT, "middle")
    )
    ends = _apart({name: _y(rows[-1][name]) for name in names})
    for number, name in enumerate(names):
        parts += _line(rows, total, name, number, ends[name])
    versions = f"{around['machine']}; {around['command']}"
    return "\n".join([*parts, draw_text(20, _HEIGHT - 12, versions, 11, SOFT, "start"), "</svg>"]) + "\n"


def _line(rows: Sequence[dict[str, Any]], total: int, name: str, number: int, label_y: float) -> list[str]:
    points = " ".join(f"{_x(row['summary'] / total):.1f},{_y(row[name]):.1f}" for row in rows)
    colour, dashes = _COLOURS[number % len(_COLOURS)], _DASHES[number % len(_DASHES)]
    return [
        f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}"/>',
        draw_text(_WIDTH - _RIGHT + 10, label_y + 4, name, 12, colour, "start"),
    ]


def _summary(row: dict[str, Any]) -> int:
    return int(row["summary"])


def _x(share: float) -> float:
    return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)


def _y(share: float) -> float:
    return _TOP + (1 - share) * (_HEIGHT - _TOP - _BOTTOM)


def _apart(places: dict[str, float]) -> dict[str, float]:
    """Move labels down until none covers another."""
    moved, least = dict[str, float](), 0.0
    for name, y in sorted(places.items(), key=lambda place: place[1]):
        moved[name] = least = max(y, least + _LABEL)
    return moved


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.curves", description=__doc__)
    parser.add_argument("results", type=Path, help="what budgets wrote with --json")
    parser.add_argument("drawing", type=Path, help="the SVG to write")
    parser.add_argument("--total", type=int, default=2_400, help="the total to draw (2400)")
    asked = parser.parse_args()
    asked.drawing.write_text(draw(json.loads(asked.results.read_text()), asked.total))


if __name__ == "__main__":
    main()
