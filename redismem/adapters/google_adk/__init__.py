"""Google ADK: sessions, their events, the state of users and apps, and memories of users in Redis."""

from redismem.settings.extras import from_extra

with from_extra("google-adk", __name__):
    from redismem.adapters.google_adk.memories import MemoryService
    from redismem.adapters.google_adk.service import SessionService

__all__ = ["MemoryService", "SessionService"]
