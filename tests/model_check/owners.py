"""The words of an owner's sessions as a process has read them, and as the model says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from model_check.model import Model
from model_check.session import SessionModel
from redismem.originals.blocks import block_number
from redismem.originals.signatures import stem_hash
from redismem.recall.owner.cached import CachedOwner
from redismem.text.stems import stems

OWNERS = ("ann", "bob")


class Signed(NamedTuple):
    """The signature of one block in an index."""

    name: str
    epoch: str
    number: int
    hashes: frozenset[int]


def read_index(cached: CachedOwner) -> set[Signed]:
    """Return the signatures of all sessions in an index."""
    return {
        Signed(name, session.state.epoch, number, frozenset(signature.hashes))
        for name, session in cached.sessions.items()
        for number, signature in session.signatures.items()
    }


def modelled_index(model: Model, owner: str) -> set[Signed]:
    """Return the signatures of all messages, in the window and in the originals, of the owner's living sessions.

    Pinned messages count as far as they are in the originals.
    """
    signed = set()
    for name, session in model.sessions.items():
        if session.owner == owner:
            words = modelled_words(session, model.originals.get(name, {}))
            signed |= {Signed(name, session.epoch, number, frozenset(each)) for number, each in words.items()}
    return signed


def without_quarantined(model: Model, signed: set[Signed]) -> set[Signed]:
    """Return the signatures of blocks that were never in quarantine."""
    return {each for each in signed if (each.epoch, each.number) not in model.quarantined}


def modelled_words(session: SessionModel, originals: Mapping[int, str | None]) -> dict[int, set[int]]:
    """Return the hashes of the words in each block of a session."""
    contents = {seq: each.content for seq, each in enumerate(session.places, session.first_seq)}
    contents |= originals if session.with_originals else {}
    blocks: dict[int, set[int]] = {}
    for seq, content in contents.items():
        is_signed = seq < session.first_seq or session.entries[seq - 1].kind != "pinned"
        if content is not None and is_signed:
            blocks.setdefault(block_number(seq), set()).update(map(stem_hash, stems(content)))
    return blocks
