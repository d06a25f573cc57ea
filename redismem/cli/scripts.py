"""`redismem repair scripts`: load the scripts into a Redis whose applications may run scripts but not load them."""

from __future__ import annotations

from typing import Annotated

from redismem.cli.logs import logs_on_stderr
from redismem.cli.options import AsJson, EveryS, Url, flag
from redismem.cli.place import HOW_TO_NAME_REDIS, open_unchecked
from redismem.cli.stopping import stop_signals, wait_for
from redismem.cli.terminal import Stop, print_json
from redismem.errors import StoreUnavailable
from redismem.events import facts
from redismem.inspection.figures import plural
from redismem.inspection.loading import load_scripts, scripts_count
from redismem.store.store import Store

Watch = Annotated[bool, flag("Keep polling and reload missing scripts, until SIGTERM or SIGINT.")]


async def repair(*, watch: Watch = False, every_s: EveryS = None, url: Url = None, as_json: AsJson = False) -> int:
    """Load the scripts, as a user with that right: see the ACL in docs/operations.md.

    A server loses its scripts on a restart, a failover and SCRIPT FLUSH. Pods whose user may load scripts reload them
    by themselves; the calls of other pods wait for this command until their deadline, so run it with `--watch`.
    """
    async with open_unchecked(url) as (memory, place):
        if place.embedded:
            raise Stop(f"an embedded store loads its own scripts; name a Redis: {HOW_TO_NAME_REDIS}", 2)
        if watch:
            return await _watch(memory.store, place.name, every_s or 1, as_json)
        loaded = await load_scripts(memory.store)
    if as_json:
        print_json({"store": place.name, "scripts_count": scripts_count(), "loaded_count": loaded})
    else:
        print(f"{plural(scripts_count(), 'script')} on {place.name}, {loaded} loaded now")
    return 0


async def _watch(store: Store, place: str, every_s: float, as_json: bool) -> int:
    with logs_on_stderr(as_json=as_json) as log, stop_signals() as stopping:
        while True:
            try:
                if loaded := await load_scripts(store):
                    log.info("%d scripts loaded on %s", loaded, place, extra=facts(op="scripts"))
            except StoreUnavailable as error:
                log.warning("%s: %s", place, error.text, extra=facts(op="scripts"))
            if await wait_for(stopping, every_s):
                return 0
