"""Load the scripts into a server, for pods whose user may run scripts but not load them."""

from __future__ import annotations

import asyncio
from typing import Any

from redismem.protocol import scripts
from redismem.protocol.call import Call, Command
from redismem.protocol.namespace import calls as namespace_calls
from redismem.store.store import Store


async def load_scripts(store: Store) -> int:
    """Load the scripts that the server lacks, and return how many it lacked. Raises StoreUnavailable, NotAllowed."""
    all_scripts = [scripts.load(name) for name in scripts.names()]
    command: Command = ("SCRIPT", "EXISTS", *(script.sha for script in all_scripts))
    answer: Any = await store.run(Call(None, (command,), list))
    missing = [script for script, is_loaded in zip(all_scripts, answer, strict=True) if not is_loaded]
    for script in missing:
        await store.run(Call(None, (("SCRIPT", "LOAD", script.source),), bool))
    return len(missing)


def scripts_count() -> int:
    """Return the number of scripts that the package has."""
    return len(scripts.names())


async def warm_up(store: Store, connections: int = 1) -> None:
    """Open connections and load the append script, as in a long-running process. Raises StoreUnavailable."""
    await store.run(Call(None, (("SCRIPT", "LOAD", scripts.load("append").source),), bool))
    await asyncio.gather(*(store.run(namespace_calls.ping()) for _ in range(connections)))
