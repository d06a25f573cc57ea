"""The words of a message are the same, whichever way they are read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from redismem import Message
from redismem.originals.fields import index_messages, searchable_texts, sign_messages
from redismem.originals.signatures import decode_signature, distinct_stems

TEXTS = some.text(some.characters(max_codepoint=0x17F) | some.sampled_from("  \n-_./+=")) | some.sampled_from(
    ["data:image/png;base64," + "aGk" * 40, "key " + "0f" * 40 + " end", "x" * 40_000, "It's O-17, e.g. [data]"]
)


@given(text=TEXTS)
@pytest.mark.parametrize("role", ["user", "assistant"])
def test_a_plain_message_has_the_words_of_one_in_parts(role: str, text: str) -> None:
    plain = Message.from_openai({"role": role, "content": text})
    in_parts = Message.from_openai({"role": role, "content": [{"type": "text", "text": text}]})
    assert distinct_stems(searchable_texts(plain)) == distinct_stems(searchable_texts(in_parts))


@given(texts=some.lists(TEXTS, min_size=1, max_size=16), first=some.integers(1, 40))
def test_an_index_of_messages_is_what_their_signature_says(texts: list[str], first: int) -> None:
    messages = [Message("user", text) for text in texts]
    for seq, message in enumerate(messages, first):
        message.seq, message.stored_ms = seq, seq * 40_000_000
    messages = [message for message in messages if (message.seq - 1) // 16 == (first - 1) // 16]
    assert index_messages(messages, 1_000) == decode_signature(sign_messages(messages, 1_000))
