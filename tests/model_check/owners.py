"""The indexes of owners as Redis has them, and as the model says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from model_check.model import Model
from model_check.session import SessionModel
from redismem.messages.values import Undecodable
from redismem.originals.blocks import block_number
from redismem.originals.signatures import decode_signature, stem_hash
from redismem.protocol.owner.entries import VERSION_FIELD, decode_entry, decode_name
from redismem.text.stems import stems

OWNERS = ("ann", "bob")


class Signed(NamedTuple):
    """The signature of one block in an index."""

    name: str
    epoch: str
    number: int
    hashes: frozenset[int]


def decode_index(stored: Mapping[bytes, bytes]) -> set[Signed]:
    """Return the signatures of an index. Raises AssertionError."""
    signed = set()
    for field, value in stored.items():
        if field == VERSION_FIELD:
            continue
        decoded = decode_name(field)
        assert decoded is not None, f"{field!r} is no name of an entry"
        try:
            entry = decode_entry(decoded[0], value)
        except Undecodable:
            raise AssertionError(f"the entry {field!r} cannot be read") from None
        for number, signature in entry.signatures.items():
            signed.add(Signed(decoded[1], entry.epoch, number, frozenset(decode_signature(signature).hashes)))
    return signed


def modelled_index(model: Model, owner: str) -> set[Signed]:
    """Return the signatures of all messages, in the window and in the originals, of the owner's living sessions.

    Pinned messages count as far as they are in the originals of a block before the window.
    """
    signed = set()
    for name, session in model.sessions.items():
        if session.owner == owner:
            words = modelled_words(session, model.originals.get(name, {}), with_pinned=False)
            signed |= {Signed(name, session.epoch, number, frozenset(each)) for number, each in words.items()}
    return without_quarantined(model, signed)


def without_quarantined(model: Model, signed: set[Signed]) -> set[Signed]:
    """Return the signatures of blocks that were never in quarantine."""
    return {each for each in signed if (each.epoch, each.number) not in model.quarantined}


def modelled_words(
    session: SessionModel, originals: Mapping[int, str | None], *, with_pinned: bool
) -> dict[int, set[int]]:
    """Return the hashes of the words in each block of a session, in any block with those of pinned messages or not."""
    window = block_number(session.first_seq) if session.places else block_number(session.total) + 1
    contents = {seq: each.content for seq, each in enumerate(session.places, session.first_seq)}
    contents |= originals if session.with_originals else {}
    blocks: dict[int, set[int]] = {}
    for seq, content in contents.items():
        number = block_number(seq)
        is_signed = with_pinned or number < window or session.entries[seq - 1].kind != "pinned"
        if content is not None and is_signed:
            blocks.setdefault(number, set()).update(map(stem_hash, stems(content)))
    return blocks
