"""Microsoft Agent Framework: its conversations, sessions and workflow checkpoints in Redis."""

from redismem.settings.extras import from_extra

with from_extra("agent-framework", __name__):
    from redismem.adapters.agent_framework.checkpoints import CheckpointStorage
    from redismem.adapters.agent_framework.history import HistoryProvider, SessionStore

__all__ = ["CheckpointStorage", "HistoryProvider", "SessionStore"]
