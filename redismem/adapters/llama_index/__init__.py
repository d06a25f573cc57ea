"""LlamaIndex: `ChatStore` keeps the messages of its `Memory` in Redis."""

from redismem.settings.extras import from_extra

with from_extra("llama-index", __name__):
    from redismem.adapters.llama_index.store import ChatStore

__all__ = ["ChatStore"]
