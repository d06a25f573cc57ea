"""The stems of four blocks: every mask comes back, whatever the hashes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from redismem.messages.values import Undecodable
from redismem.originals.merged_stems import decode_stems, encode_stems

BLOCK = st.dictionaries(st.integers(0, 0xFFFF), st.integers(1, 0xFFFF), max_size=30)
FORM = (
    "002d001400110101020102010201020102030102010201020102010201030201020102010201020105010201020102010201"
    "02202d7d0000280001030707041000053733b25d01202d65000010880003c0808697331b88160fa21f433e854e266d687d09"
    "9c4babeccb2edacffa110fa32ee73e895dcd6d6f8cb39c55bb99cb3bea7ffa211f472eea4e305dd37d198cbcac02bba5daeb"
    "ea8e0fa51f493e914e356d7d7d219c69ac0dcb55daf9fa41"
)


@given(st.lists(BLOCK, min_size=4, max_size=4))
def test_every_mask_comes_back(blocks: list[dict[int, int]]) -> None:
    decoded = decode_stems(encode_stems(blocks))
    assert [dict(zip(*each, strict=True)) for each in decoded] == blocks
    assert [list(hashes) for hashes, _ in decoded] == [sorted(each) for each in blocks]


def test_as_many_stems_as_sixty_four_messages_can_have() -> None:
    blocks = [{hashed: 1 << hashed % 16 for hashed in range(at, 8_192 * 4, 4)} for at in range(4)]
    assert [dict(zip(*each, strict=True)) for each in decode_stems(encode_stems(blocks))] == blocks


@given(st.lists(BLOCK, min_size=4, max_size=4), st.data())
def test_what_has_changed_is_other_stems_or_none(blocks: list[dict[int, int]], data: st.DataObject) -> None:
    encoded = bytearray(encode_stems(blocks))
    encoded[data.draw(st.integers(0, len(encoded) - 1))] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.integers(0, len(encoded)))
    for damaged in (bytes(encoded), bytes(encoded[:cut])):
        try:
            decoded = decode_stems(damaged)
        except Undecodable:
            continue
        assert len(decoded) == 4
        assert all(len(hashes) == len(masks) for hashes, masks in decoded)


def test_the_form_is_what_it_was() -> None:
    """Stored signatures must stay readable in later releases: the code tables are a part of the form."""
    steps = range(4_001, 4_005)
    masks = [enumerate(range(1, 0xFFFF, step), 19 * at) for at, step in enumerate(steps)]
    blocks = [{hashed: mask for hashed, mask in each if hashed % 3} for each in masks]
    assert [dict(zip(*each, strict=True)) for each in decode_stems(bytes.fromhex(FORM))] == blocks
