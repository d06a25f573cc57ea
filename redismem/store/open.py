"""Open a store with its layers: the hook, and the fallback."""

from __future__ import annotations

import weakref

from redismem.concurrency.background import Background
from redismem.events import OnEvent
from redismem.protocol.clock import Clock
from redismem.settings.settings import Settings
from redismem.store.hook import Hook
from redismem.store.store import Store
from redismem.transport.base import Transport


def open_store(
    transport: Transport,
    namespace: str | None,
    settings: Settings,
    on_event: OnEvent | None,
    clock: Clock | None,
    background: Background | None = None,
) -> Store:
    """Return a store, with a hook if `on_event` is given, and with the fallback if `background` is given.

    `None` as namespace means the namespace of the settings.

    Raises:
        InvalidSessionId: The namespace is not valid.
        TypeError: `on_event` is not a plain function.
    """
    namespace = settings.namespace if namespace is None else namespace
    store = Store(transport, namespace, settings, clock, None if on_event is None else Hook(on_event, namespace))
    if background is not None:
        from redismem.store.fallback.fallback import Fallback

        store.use_fallback(Fallback(store, background), min(settings.fallback_after_s, settings.deadline_s))
    # An event loop keeps a connection open even after its last reference is gone.
    weakref.finalize(store, transport.drop).atexit = False
    return store
