"""`redismem repair scripts`: load the scripts into a Redis whose applications may run scripts but not load them."""

from __future__ import annotations

from typing import Annotated

from redismem.cli.logs import logs_on_stderr
from redismem.cli.options import EveryS, flag
from redismem.cli.place import HOW_TO_NAME_REDIS, connect, stop_for
from redismem.cli.stopping import stop_signals, wait_for
from redismem.cli.terminal import AsJson, Stop, Url, print_json
from redismem.errors import NotAllowed, StoreUnavailable
from redismem.events import facts
from redismem.inspection.figures import plural
from redismem.inspection.loading import load_scripts, scripts_count

Watch = Annotated[bool, flag("Keep polling and reload missing scripts, until SIGTERM or SIGINT.")]


async def repair(*, watch: Watch = False, every_s: EveryS = None, url: Url = None, as_json: AsJson = False) -> int:
    """Load the scripts, as a user with that right: see the ACL in docs/operations.md.

    A server loses its scripts on a restart, a failover and SCRIPT FLUSH. Pods whose user may load scripts reload them
    by themselves; the calls of other pods wait for this command until their deadline, so run it with `--watch`.
    """
    memory, place = connect(url, "default")
    if place.embedded:
        raise Stop(f"an embedded store loads its own scripts; name a Redis: {HOW_TO_NAME_REDIS}", 2)
    try:
        with logs_on_stderr(as_json=as_json) as log, stop_signals() as stopping:
            while True:
                try:
                    loaded = await load_scripts(memory.store)
                except StoreUnavailable as error:
                    if not watch:
                        raise
                    log.warning("%s: %s", place.name, error.text, extra=facts(op="scripts"))
                else:
                    if not watch:
                        _print_count(place.name, loaded, as_json=as_json)
                        return 0
                    if loaded:
                        log.info("%d scripts loaded on %s", loaded, place.name, extra=facts(op="scripts"))
                if await wait_for(stopping, every_s or 1):
                    return 0
    except (StoreUnavailable, NotAllowed) as error:
        raise stop_for(place.name, error) from None
    finally:
        await memory.aclose()


def _print_count(place: str, loaded: int, *, as_json: bool) -> None:
    if as_json:
        print_json({"store": place, "scripts_count": scripts_count(), "loaded_count": loaded})
    else:
        print(f"{plural(scripts_count(), 'script')} on {place}, {loaded} loaded now")
