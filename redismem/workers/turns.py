"""End the turns whose process has died, if nobody follows their session."""

from __future__ import annotations

from redismem.errors import RedismemError
from redismem.events import facts
from redismem.live.ending import end_if_dead
from redismem.protocol.live.calls import due_turns
from redismem.store.store import Store
from redismem.workers.failures import log_failure


async def end_dead_turns(store: Store) -> None:
    """End each running turn whose lease is over, see `end_if_dead`.

    Raises:
        StoreUnavailable: Redis does not answer before the deadline.
    """
    now_ms = await store.server_time_ms()
    for session_id in await store.run(due_turns(store.keys.shards(), now_ms)):
        try:
            await end_if_dead(store, store.keys.session(session_id))
        except RedismemError as error:  # the next sweep tries again
            log_failure("a turn without its process could not be ended", error, facts(op="claim_turn"))
