"""LangGraph: a checkpoint saver and a store over records. They need Redis 7 or Valkey, and no modules."""

from redismem.settings.extras import from_extra

with from_extra("langgraph", __name__):
    from redismem.adapters.langgraph.saver import RedismemSaver
    from redismem.adapters.langgraph.store import RedismemStore
    from redismem.adapters.langgraph.strict import StrictSerializer

__all__ = ["RedismemSaver", "RedismemStore", "StrictSerializer"]
