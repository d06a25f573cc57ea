"""`redismem deploy`: the scripts into a Redis whose applications may run them, and load none of their own."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter, validators

from redismem.cli.logs import logs_on_stderr
from redismem.cli.place import HOW_TO_NAME_REDIS, connect, refused
from redismem.cli.stopping import stop_signals, wait_for
from redismem.cli.terminal import AsJson, Stop, Url, plural, print_json
from redismem.errors import NotAllowed, StoreUnavailable
from redismem.events import facts
from redismem.inspection.loading import load_scripts, scripts_count

Watch = Annotated[
    bool, Parameter(negative=(), show_default=False, help="Look again and again, until told to stop: SIGTERM, SIGINT.")
]
EveryS = Annotated[
    float, Parameter(validator=validators.Number(gte=0.01, lte=3_600), help="Seconds between two looks.")
]


async def deploy(*, watch: Watch = False, every_s: EveryS = 1, url: Url = None, as_json: AsJson = False) -> int:
    """Load the scripts, as a user that may: see the ACL of docs/operations.md.

    A server forgets its scripts when it restarts, when another takes over, and at SCRIPT FLUSH. Pods whose user may
    load them do so by themselves; others wait for this, each call until its deadline. So let it watch.
    """
    memory, place = connect(url, "default")
    if place.embedded:
        raise Stop(f"an embedded store loads its scripts itself: {HOW_TO_NAME_REDIS}", 2)
    try:
        with logs_on_stderr(as_json=as_json) as log, stop_signals() as stopping:
            while True:
                try:
                    loaded = await load_scripts(memory.store)
                except StoreUnavailable as error:
                    if not watch:
                        raise
                    log.warning("%s: %s", place.name, error.text, extra=facts(op="deploy"))
                else:
                    if not watch:
                        _say(place.name, loaded, as_json=as_json)
                        return 0
                    if loaded:
                        log.info("%d scripts loaded on %s", loaded, place.name, extra=facts(op="deploy"))
                if await wait_for(stopping, every_s):
                    return 0
    except (StoreUnavailable, NotAllowed) as error:
        raise refused(place.name, error) from None
    finally:
        await memory.aclose()


def _say(place: str, loaded: int, *, as_json: bool) -> None:
    if as_json:
        print_json({"store": place, "scripts_count": scripts_count(), "loaded_count": loaded})
    else:
        print(f"{plural(scripts_count(), 'script')} on {place}, {loaded} loaded now")
