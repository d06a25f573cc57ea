"""Chainlit: `DataLayer` keeps users, threads, steps, elements and feedback in Redis, one record per thread."""

from redismem.settings.extras import from_extra

with from_extra("chainlit", __name__):
    from redismem.adapters.chainlit.layer import DataLayer

__all__ = ["DataLayer"]
