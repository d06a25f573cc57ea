"""Remove a block of a session from the index of its owner."""

from __future__ import annotations

from dataclasses import replace

from redismem.messages.values import Undecodable
from redismem.protocol.keys import SessionKeys
from redismem.protocol.owner import calls
from redismem.protocol.owner.entries import decode_entry, decode_name, encode_entry
from redismem.store.store import Store


async def drop_block(store: Store, keys: SessionKeys, number: int) -> str | None:
    """Remove a block that is about to go into quarantine from the index of the session's owner, if it has one.

    Returns the owner. The index is no longer whole then, so the next update of it reads all signatures of the session
    again.

    Raises:
        StoreUnavailable: Redis does not answer before the deadline.
        CorruptSession: The stored bytes of the session cannot be read.
        UnsupportedFormat: Another release wrote the session.
    """
    owner = (await store.run(calls.describe(keys))).owner
    if owner is None:
        return None
    numbers = await store.run(calls.signed_blocks(keys, number))
    index = calls.owner_keys(store.keys, owner)
    names = (await store.run(calls.read_names(index))).get(keys.session_id, [])
    stored = await store.run(calls.read_entries(index, names)) if names else {}
    sets, drops = dict[bytes, bytes](), list[bytes]()
    for name, value in stored.items():
        decoded = decode_name(name)
        assert decoded is not None
        try:
            entry = decode_entry(decoded[0], value)
        except Undecodable:
            continue  # the next update writes it anew
        left = {number: signature for number, signature in entry.signatures.items() if number not in numbers}
        if not left and entry.signatures:
            drops.append(name)
        elif len(left) < len(entry.signatures):
            sets[name] = encode_entry(decoded[0], replace(entry, signatures=left))
    if sets or drops:
        await store.run(calls.change(index, store.clock, sets, drops))
    return owner
