"""The alerts of docs/alerts.yml, evaluated over scrapes: exactly the forms of expressions that the file uses."""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from prometheus_client.parser import text_string_to_metric_families

Labels = Mapping[str, str]
Sample = tuple[str, Labels, float]
RULES = Path(__file__).parents[2] / "docs" / "alerts.yml"
_COMPARED: Mapping[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "<": operator.lt,
}
_SELECTOR = r"\w+(?:\{[^}]*\})?"
_EXPRESSION = re.compile(rf"(min|max) by \(([\w, ]+)\) \(({_SELECTOR})(?: / ({_SELECTOR}))?\) (>=|==|>) ([\d.]+)")
_COUNT = re.compile(rf"count by \((\w+)\) \(({_SELECTOR}) == ([\d.]+)\) < (\d+)")
_ABSENT = re.compile(rf"absent\(({_SELECTOR})(?: == ([\d.]+))?\)")
_MATCHER = re.compile(r'(\w+)(=~|!=|=)"([^"]*)"')


def parse_scrape(text: str | None, job: str = "redismem-server", instance: str = "server:8080") -> list[Sample]:
    """Return the samples of a scrape, with the labels that Prometheus adds. `None` means that the scrape failed."""
    own = {"job": job, "instance": instance}
    samples: list[Sample] = [("up", own, float(text is not None))]
    for family in text_string_to_metric_families(text or ""):
        samples += [(sample.name, {**sample.labels, **own}, sample.value) for sample in family.samples]
    return samples


def select(samples: list[Sample], selector: str) -> dict[frozenset[tuple[str, str]], float]:
    """Return the values of the series that a selector names, by their labels."""
    name, _, inside = selector.rstrip("}").partition("{")
    matchers = _MATCHER.findall(inside)
    assert ",".join(f'{label}{how}"{value}"' for label, how, value in matchers) == inside, selector

    def fits(labels: Labels) -> bool:
        for label, how, value in matchers:
            own_value = labels.get(label, "")
            matches = re.fullmatch(value, own_value) is not None if how == "=~" else own_value == value
            if matches is (how == "!="):
                return False
        return True

    return {frozenset(labels.items()): value for own, labels, value in samples if own == name and fits(labels)}


def evaluate(expression: str, samples: list[Sample]) -> dict[tuple[str, ...], float]:
    """Return the groups, by the values of their labels, in which an expression is true.

    Raises:
        AssertionError: The expression has a form that docs/alerts.yml did not use so far.
    """
    if (absent := _ABSENT.fullmatch(expression)) is not None:
        found = _equal_to(absent[2], select(samples, absent[1]))
        return {} if found else {(): 1.0}
    if (counted := _COUNT.fullmatch(expression)) is not None:
        counts = Counter(
            dict(labels).get(counted[1], "") for labels in _equal_to(counted[3], select(samples, counted[2]))
        )
        return {(group,): float(count) for group, count in counts.items() if count < int(counted[4])}
    match = _EXPRESSION.fullmatch(expression)
    assert match is not None, expression
    how, by, selector, divisor, comparison, number = match.groups()
    values = select(samples, selector)
    if divisor:
        below = select(samples, divisor)
        values = {labels: value / below[labels] for labels, value in values.items() if labels in below}
    groups: dict[tuple[str, ...], float] = {}
    for labels, value in values.items():
        group = tuple(dict(labels).get(label.strip(), "") for label in by.split(","))
        groups[group] = value if group not in groups else (min if how == "min" else max)(groups[group], value)
    return {group: value for group, value in groups.items() if _COMPARED[comparison](value, float(number))}


def _equal_to(
    number: str | None, values: dict[frozenset[tuple[str, str]], float]
) -> dict[frozenset[tuple[str, str]], float]:
    return {labels: value for labels, value in values.items() if number is None or value == float(number)}


def seconds(text: str) -> int:
    """Return a duration of Prometheus in seconds."""
    count, unit = int(text[:-1]), text[-1]
    return count * {"s": 1, "m": 60}[unit]


@dataclass
class Alerts:
    """Prometheus' alert manager in small: it remembers since when each alert is pending."""

    rules: list[Any] = field(default_factory=lambda: yaml.safe_load(RULES.read_text())["groups"][0]["rules"])
    _since_s: dict[tuple[str, ...], float] = field(default_factory=dict)

    def see(self, now_s: float, samples: list[Sample]) -> set[str]:
        """Evaluate all rules over the samples of this moment, and return the names of the alerts that fire."""
        firing, pending = set(), {}
        for rule in self.rules:
            for group in evaluate(rule["expr"], samples):
                key = (rule["alert"], *group)
                pending[key] = self._since_s.get(key, now_s)
                if now_s - pending[key] >= seconds(rule["for"]):
                    firing.add(rule["alert"])
        self._since_s = pending
        return firing
