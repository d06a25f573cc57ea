"""Making a server know the scripts, for those who may run them and not load them."""

from __future__ import annotations

from typing import Any

from redismem.protocol import scripts
from redismem.protocol.call import Call, Command
from redismem.store.store import Store


async def load_scripts(store: Store) -> int:
    """Loads what the server does not know. Gives how many that were. Raises StoreUnavailable, NotAllowed."""
    known_scripts = [scripts.load(name) for name in scripts.names()]
    asked: Command = ("SCRIPT", "EXISTS", *(script.sha for script in known_scripts))
    known: Any = await store.run(Call(None, (asked,), list))
    missing = [script for script, is_known in zip(known_scripts, known, strict=True) if not is_known]
    for script in missing:
        await store.run(Call(None, (("SCRIPT", "LOAD", script.source),), bool))
    return len(missing)


def scripts_count() -> int:
    """How many scripts there are."""
    return len(scripts.names())
