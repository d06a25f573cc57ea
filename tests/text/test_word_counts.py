"""The sketch of a session's words: its counts, its bounds, and its stored form."""

from __future__ import annotations

import asyncio
import zlib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from redismem.messages.message import Message
from redismem.text.stems import stems
from redismem.text.word_counts import Sketch, hash_of, hashes_in, hashes_of, learn_messages, words_of

hashes = st.integers(0, 0xFFFF)
MOST_BYTES = 4_096


def learn(*texts: str, before: Sketch | None = None) -> Sketch:
    return asyncio.run(learn_messages(before or Sketch(), [Message("user", text) for text in texts]))


def test_a_frequent_word_is_less_rare() -> None:
    sketch = learn(*["so good to see you"] * 20, "the ferry to Bornholm", "so good")
    often, once, never = (sketch.rarity(hash_of(word)) for word in ("so", "ferri", "unheard"))
    assert 0 <= often < once < never == 1


def test_a_word_counts_once_per_message() -> None:
    once, often = learn("ferry", "x"), learn("ferry ferry ferry", "x")
    assert once.pack() == often.pack()


def test_tool_calls_and_results_count_and_another_form_is_the_same_word() -> None:
    call = {"id": "c", "function": {"name": "book", "arguments": '{"place": "Bornholm"}'}}
    messages = [Message("assistant", None, tool_calls=[call]), Message("tool", "two ferries", tool_call_id="c")]
    sketch = asyncio.run(learn_messages(Sketch(), messages))
    assert sketch.rarity(hash_of("bornholm")) == sketch.rarity(hash_of("ferri")) < 1


def test_learning_leaves_the_earlier_sketch_unchanged() -> None:
    before = learn("ferry")
    packed = before.pack()
    learn("ferry again", before=before)
    assert before.pack() == packed


def test_old_counts_fade() -> None:
    sketch = learn(*["ferry"] * 40)
    soon = sketch.rarity(hash_of("ferri"))
    later = learn(*[f"word{number}" for number in range(600)], before=sketch)
    assert later.rarity(hash_of("ferri")) > soon


def test_a_message_of_very_many_words_is_read_in_part() -> None:
    flood = " ".join(f"w{number}" for number in range(200_000))
    assert len(words_of(flood)) <= 256
    assert len(learn(flood, flood, flood, flood, "ferry").pack()) <= MOST_BYTES


def test_a_bomb_is_not_unpacked() -> None:
    packed = b"\x01\x09" + zlib.compress(b"\x01" * (1 << 26))
    assert Sketch.unpack(packed).pack() == Sketch().pack()


@given(st.lists(st.lists(hashes, max_size=300), max_size=12))
def test_property_a_stored_sketch_is_bounded_and_reads_back_unchanged(messages: list[list[int]]) -> None:
    sketch = Sketch()
    for words in messages:
        sketch.add(words)
    packed = sketch.pack()
    again = Sketch.unpack(packed)
    assert (again.pack(), len(packed) <= MOST_BYTES) == (packed, True)
    for word in {word for words in messages for word in words}:
        assert again.rarity(word) == sketch.rarity(word)


@given(
    st.sampled_from([b"", b"\x01", b"\x01\x01"])
    | st.binary(max_size=50)
    | st.binary(max_size=40).map(lambda tail: b"\x01\x09" + zlib.compress(tail))
)
def test_property_foreign_bytes_weigh_words_somehow(packed: bytes) -> None:
    sketch = Sketch.unpack(packed)
    assert 0 <= sketch.rarity(7) <= 1
    sketch.add([7, 8])
    assert Sketch.unpack(sketch.pack()).pack() == sketch.pack()


@given(st.lists(st.text(max_size=60), max_size=8))
def test_property_any_text_is_counted_the_same_each_time(texts: Any) -> None:
    assert learn(*texts).pack() == learn(*texts).pack()


@given(st.text(max_size=60) | st.text("aB9 _é語한-", max_size=90))
def test_the_hashes_of_a_sentence_are_those_of_its_stems(text: str) -> None:
    assert hashes_in(text) == set(map(hash_of, stems(text)))
    assert set(hashes_of(text)) == hashes_in(text), "one word or many"
    assert words_of(text) == list(dict.fromkeys(map(hash_of, stems(text))))[:256]


@given(st.dictionaries(st.integers(0, 99), st.integers(1, 9)), st.sets(st.integers(0, 120)))
def test_rarities_are_the_rarity_of_each(counts: dict[int, int], words: set[int]) -> None:
    sketch = Sketch(9, counts)
    assert sketch.rarities(words) == {word: sketch.rarity(word) for word in words}
