"""LangGraph: a checkpoint saver and a store over records. They need Redis 7 or Valkey, and no modules."""

from redismem.adapters.sessions import missing_framework

try:
    import langgraph.checkpoint.base
    import langgraph.store.base  # noqa: F401
except ImportError as missing:
    raise missing_framework("redismem.adapters.langgraph", "langgraph") from missing

from redismem.adapters.langgraph.saver import RedismemSaver
from redismem.adapters.langgraph.store import RedismemStore
from redismem.adapters.langgraph.strict import StrictSerializer

__all__ = ["RedismemSaver", "RedismemStore", "StrictSerializer"]
