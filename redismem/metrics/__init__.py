"""Metrics for Prometheus: of the turns and workers of a process, and of the queues in Redis."""

from redismem.settings.extras import from_extra

with from_extra("metrics", __name__):
    from redismem.metrics.prometheus import Metrics

__all__ = ["Metrics"]
