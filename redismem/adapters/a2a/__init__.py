"""A2A: tasks, their events and push notification configs in Redis, shared by all replicas of an agent."""

from redismem.adapters.a2a.events import TaskEventStream
from redismem.adapters.a2a.push import PushNotificationConfigStore
from redismem.adapters.a2a.tasks import TaskStore
from redismem.adapters.a2a.versioned import VersionedTaskStore

__all__ = ["PushNotificationConfigStore", "TaskEventStream", "TaskStore", "VersionedTaskStore"]
