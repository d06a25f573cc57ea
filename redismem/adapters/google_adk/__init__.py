"""Google ADK: `SessionService` keeps sessions, their events and the state of users and apps in Redis."""

from redismem.settings.extras import from_extra

with from_extra("google-adk", __name__):
    from redismem.adapters.google_adk.service import SessionService

__all__ = ["SessionService"]
