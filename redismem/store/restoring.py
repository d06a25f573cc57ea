"""Create a session from parts that were salvaged or imported."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from redismem.protocol.keys import SessionKeys
from redismem.protocol.quarantine import drop_copy, of_session, restore_copy
from redismem.protocol.session.quarantine import STAGED_MS, new_epoch, revive, stage
from redismem.protocol.session.restore import Restoration
from redismem.store.store import Store

NO_ORIGINALS: Mapping[bytes, bytes] = MappingProxyType({})


async def bring_in(
    store: Store, keys: SessionKeys, plan: Restoration, originals: Mapping[bytes, bytes] = NO_ORIGINALS
) -> None:
    """Create a session from these parts: stage it in quarantine, and restore it from there in one step.

    Raises:
        SessionExists: a session has this id.
        StoreUnavailable: Redis does not answer before the deadline.
    """
    place, now_ms = of_session(keys), await store.server_time_ms()
    epoch = plan.epoch or await store.run(new_epoch(keys))
    revival = revive(plan, epoch, now_ms, store.settings)
    staged_ms = now_ms + STAGED_MS  # the time of its expiry, at which no process puts this session into quarantine
    await store.run(stage(keys, staged_ms, revival.sets, plan.elements, originals))
    try:
        await store.run(restore_copy(place, staged_ms, revival._replace(sets={})))
    finally:
        await store.run(drop_copy(place, staged_ms))
