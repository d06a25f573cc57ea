"""The distribution of shards over the slots of a cluster."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from fractions import Fraction
from math import ceil, floor

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from redismem.protocol.keys import Keys
from redismem.protocol.slots import SLOT_COUNT, shard_tags

ALNUM = "ABCXYZabcxyz0189"
namespaces = st.builds(str.__add__, st.sampled_from(ALNUM), st.text(alphabet=ALNUM + "._-", max_size=63))

SHARD_COUNTS = st.integers(1, 128) | st.sampled_from([255, 256, 1_000, 1_024])


def slots_of(namespace: str, shard_count: int) -> list[int]:
    """Return the slot of each shard, by redis-py's hash of one of its keys."""
    return [key_slot(shard.active) for shard in Keys(namespace, shard_count).shards()]


def masters(count: int) -> list[range]:
    """Return the slots of each of `count` masters, as `redis-cli --cluster create` assigns them."""
    ends = [round(SLOT_COUNT / count * number) for number in range(count + 1)]
    return [range(start, end) for start, end in itertools.pairwise(ends)]


def slot_counts(slots: list[int], owners: list[range]) -> list[int]:
    return [sum(slot in owned for slot in slots) for owned in owners]


@given(namespace=namespaces, shard_count=SHARD_COUNTS, master_count=st.integers(1, 64))
def test_no_master_has_more_than_its_share(namespace: str, shard_count: int, master_count: int) -> None:
    slots = slots_of(namespace, shard_count)
    counts = slot_counts(slots, masters(master_count))
    assert sum(counts) == shard_count
    assert max(counts) <= ceil(Fraction(shard_count, master_count) + Fraction(shard_count, SLOT_COUNT))
    assert len(set(slots)) == shard_count


@given(
    namespace=namespaces,
    shard_count=SHARD_COUNTS,
    start=st.integers(0, SLOT_COUNT - 1),
    slot_count=st.integers(0, SLOT_COUNT),
)
def test_consecutive_slots_hold_their_share_of_shards(
    namespace: str, shard_count: int, start: int, slot_count: int
) -> None:
    """This holds for every first slot, and also across slot 0."""
    found = sum((slot - start) % SLOT_COUNT < slot_count for slot in slots_of(namespace, shard_count))
    share = Fraction(slot_count * shard_count, SLOT_COUNT)
    assert floor(share) <= found <= ceil(share)


@pytest.mark.parametrize("master_count", [1, 2, 3, 4, 5, 6, 8, 9, 12, 16, 24, 32, 64])
def test_the_default_shards_are_spread_evenly_over_masters(master_count: int) -> None:
    for namespace in ("default", "shop", "shop.eu", "a-b_c"):
        assert max(slot_counts(slots_of(namespace, 64), masters(master_count))) == ceil(64 / master_count)


def test_tags_without_letters_would_be_uneven() -> None:
    """The test above detects an uneven placement."""
    plain = [key_slot(f"rm:{{shop:{shard:02d}}}:active".encode()) for shard in range(64)]
    assert max(slot_counts(plain, masters(12))) >= 8 > max(slot_counts(slots_of("shop", 64), masters(12))) == 6


def test_small_namespaces_do_not_crowd_on_one_master() -> None:
    counts = slot_counts([slot for number in range(300) for slot in slots_of(f"tenant-{number}", 1)], masters(3))
    assert min(counts) > 60


@given(namespace=st.text(max_size=70), shard_count=st.integers(1, 64))
def test_tags_are_readable_and_distinct(namespace: str, shard_count: int) -> None:
    """This holds for invalid namespaces, too, such as a text with braces."""
    namespace = namespace.encode("utf-8", "replace").decode()
    tags = shard_tags(namespace, shard_count)
    names = [f"{namespace}:{shard:02d}" for shard in range(shard_count)]
    assert [tag[:-4] for tag in tags] == names
    assert {letter for tag in tags for letter in tag[-4:]} <= set("hijklmnopqrstuvw")


def test_tags_are_the_same_in_every_process() -> None:
    # Stored keys have these tags: they change only with the layout version.
    assert shard_tags("shop", 64)[:3] == ("shop:00olol", "shop:01mwrh", "shop:02imhp")
    assert shard_tags("default", 1) == shard_tags("default", 1)
    program = "from redismem.protocol.slots import shard_tags; print(hash(''), *shard_tags('shop', 300))"
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    told = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert tuple(told.stdout.split()[1:]) == shard_tags("shop", 300)
