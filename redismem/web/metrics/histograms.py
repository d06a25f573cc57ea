"""Histograms that cost a turn next to nothing: prometheus_client's own take a lock and a walk for each number."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector


class Counts:
    """One child: how many numbers fell below each bound, and their sum."""

    __slots__ = ("_bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, number: float) -> None:
        """Counts a number. Called on one event loop alone."""
        self.counts[bisect_left(self._bounds, number)] += 1
        self.sum += number


class Histogram(Collector):
    """A histogram by labels; without any, `observe` counts in its only child."""

    def __init__(
        self, name: str, text: str, labels: Sequence[str] = (), *, buckets: Sequence[float], registry: CollectorRegistry
    ) -> None:
        self._name = name
        self._text = text
        self._labels = tuple(labels)
        self._bounds = tuple(buckets)
        self._children: dict[tuple[str, ...], Counts] = {}
        if not labels:
            self.observe = self.labels().observe
        registry.register(self)

    def labels(self, *values: str) -> Counts:
        """The child with these labels."""
        return self._children.setdefault(values, Counts(self._bounds))

    @property
    def bounds(self) -> tuple[float, ...]:
        """The upper bounds of its buckets, but for the last, which has none."""
        return self._bounds

    def children(self) -> Iterable[tuple[tuple[str, ...], Counts]]:
        """The children, each with its labels."""
        return self._children.items()

    def describe(self) -> Iterator[HistogramMetricFamily]:
        """The name and the labels of the histogram, without its numbers."""
        yield HistogramMetricFamily(self._name, self._text, labels=self._labels)

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """All that was counted."""
        family = HistogramMetricFamily(self._name, self._text, labels=self._labels)
        for values, child in self._children.items():
            total, buckets = 0, []
            for bound, count in zip((*map(str, self._bounds), "+Inf"), child.counts, strict=True):
                total += count
                buckets.append((bound, total))
            family.add_metric(values, buckets, child.sum)
        yield family
