"""Metrics for Prometheus: of the turns and workers of a process, and of the queues in Redis."""

from redismem.metrics.prometheus import Metrics

__all__ = ["Metrics"]
