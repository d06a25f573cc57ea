"""The figures and texts of the operations view, and those that a document of the doctor asks for."""

from __future__ import annotations

import re
from typing import Any

from playwright.async_api import Page

CHECKS = {
    "queues": ("summaries", "providers"),
    "processes": ("ticks",),
    "dead": ("dead",),
    "quarantine": ("quarantine",),
}
"""The findings that each card of the view begins with."""
_DRAWN = """() => {
  const text = (selector) => document.querySelector(selector).textContent;
  const pairs = (selector, pick) => Object.fromEntries([...document.querySelectorAll(selector)].map(pick));
  const rows = (id) => [...document.querySelectorAll(`#${id} > li`)].map((row) =>
    [row.dataset.key, row.dataset.verdict, row.children[2].textContent, row.children[3].textContent]);
  const cards = ["queues", "processes", "dead", "quarantine"];
  const listed = ["processes", "dead", "quarantine"];
  return {
    badges: pairs("#badges:not([hidden]) .badge", (badge) => [badge.dataset.key, badge.firstElementChild.textContent]),
    word: text("#doctor-word"),
    verdict: document.querySelector("#doctor").dataset.verdict,
    findings: [...rows("findings"), ...rows("passed")],
    checks: Object.fromEntries(cards.map((name) => [name, rows(`${name}-checks`)])),
    sessions: text("#tiles [data-key=Sessions] strong"),
    store: text("#tiles [data-key=Store] strong"),
    queues: pairs("#queues tr", (row) => [row.dataset.key, row.children[1].textContent]),
    counts: Object.fromEntries(listed.map((name) => [name, text(`#${name}-count`)])),
    lengths: Object.fromEntries(listed.map((name) => [name, document.querySelectorAll(`#${name} > li`).length])),
  };
}"""
# The elements that are wider than the window, or whose text is cut off.
_CUT_OFF = """() => {
  const name = (node) => `${node.tagName} ${node.id || node.className}: ${node.textContent.slice(0, 40)}`;
  const shown = [...document.querySelectorAll(".top *, main:not([hidden]) *")].filter((node) =>
    node.checkVisibility() && !node.closest(".unseen, svg, #health-text, [aria-hidden=true]"));
  const outside = shown.filter((node) => node.getBoundingClientRect().right > innerWidth + 1);
  const cut = shown.filter((node) => node.scrollWidth > node.clientWidth + 1 && node.clientWidth > 0 &&
    getComputedStyle(node).overflowX !== "visible");
  const page = document.documentElement.scrollWidth > innerWidth ? ["the page scrolls sideways"] : [];
  return [...page, ...outside.map(name), ...cut.map(name)];
}"""


async def figures_of(page: Page) -> dict[str, Any]:
    """Return the figures and texts that the operations view shows."""
    drawn: dict[str, Any] = await page.evaluate(_DRAWN)
    return drawn


async def cut_off(page: Page) -> list[str]:
    """Return what of the header and the view cannot be read at the page's width."""
    found: list[str] = await page.evaluate(_CUT_OFF)
    return found


def figures_for(document: dict[str, Any]) -> dict[str, Any]:
    """Return the figures and texts that this document of `GET /v1/doctor` asks for."""
    failed, warnings, queues = document["failed_count"], document["warnings_count"], document["queues"]
    rows = [[row["name"], row["verdict"], row["seen"], row["advice"].replace("`", "")] for row in document["findings"]]
    wrong = f"{failed} failed, {warnings} {'warning' if warnings == 1 else 'warnings'}"
    depths = {} if queues is None else queues["queues"]
    names = ("overdue", "leased", "dead", "evictions")
    counts = {
        "processes": len(document["processes"] or ()),
        "dead": depths.get("dead", {"count": 0})["count"],
        "quarantine": len(document["quarantined"]),
    }
    is_answering = next(row["verdict"] for row in document["findings"] if row["name"] == "connection") == "ok"
    return {
        "badges": {kind: str(count) for kind, count in (("fail", failed), ("warn", warnings)) if count},
        "word": wrong if failed or warnings else "No problems found",
        "verdict": "fail" if failed else "warn" if warnings else "ok",
        "findings": rows,
        "checks": {card: [row for name in names for row in rows if row[0] == name] for card, names in CHECKS.items()},
        "sessions": "–" if queues is None else f"{queues['sessions']:,}",
        "store": "answers" if is_answering else "away",
        "queues": {name: f"{depths[name]['count']:,}" if depths else "–" for name in names},
        "counts": {name: "" if queues is None else f"{count:,}" for name, count in counts.items()},
        "lengths": {name: 0 if queues is None else min(count, 50) for name, count in counts.items()},
    }


def without_times(text: str) -> str:
    """Return a finding's text without durations and loads, which differ between two examinations."""
    return re.sub(r"\d[\d.,]* ?(ms|s|min|h|days?|%|[KMG]i?B|bytes)?\b", "N", text)
