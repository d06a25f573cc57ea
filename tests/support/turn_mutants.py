"""Faults of the scripts of turns that the campaign of turns must notice."""

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
    "holder": (
        Mutant("write_turns", "writes for a holder that was replaced", "fence", " and seen_holder == holder", ""),
        Mutant("append_turn", "appends for a holder that was replaced", "own", " and seen_holder == holder", ""),
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
