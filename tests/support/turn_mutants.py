"""Faults of the scripts of turns that the campaign of turns must notice.

A fence that lacks the holder alone is not among them: a turn is claimed and ended within a millisecond, and then its
status refuses the old holder. `tests/lua/live/` shows that each script checks the holder.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace

from redismem.protocol import scripts
from support.mutants import Mutant, mutate

FAULTS: Mapping[str, tuple[Mutant, ...]] = {
    "fence": (
        Mutant("write_turns", "writes for everybody", "fence", "status == .*", "turn"),
        Mutant("append_turn", "appends for everybody", "fence"),
    ),
    "offset": (Mutant("write_turns", "appends whatever is resent", "new bytes", "is_equal .*", "data"),),
}


def seed(name: str) -> None:
    """Let this process use the broken scripts."""
    broken = {}
    for mutant in FAULTS[name]:
        script = scripts.load(mutant.script)
        source = mutate(script.source.decode(), mutant).encode()
        broken[mutant.script] = replace(script, source=source, sha=hashlib.sha1(source).hexdigest().encode())
    load = scripts.load
    scripts.load = lambda name: broken.get(name) or load(name)  # type: ignore[assignment]
