"""The built-in dictionaries for compressing blocks without a trained one. No I/O but the read of `words.txt`.

Both are parts of the format: a change of a text requires a new format version. Content that is more likely comes later,
because zstd encodes a shorter distance in fewer bits.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import zstandard

from redismem.messages.encoding import encode_message
from redismem.originals.columns import STAMP, encode_columns
from redismem.originals.dictionaries import ZstdDictionary

_WORDS = (
    b"Thank you for your help today. You're welcome! If you have any other questions, feel free to ask. Is "
    b"there anything else I can help you with? I would like to know whether you could please let me know "
    b"about the information that you have already been given. I think that we should have been able to do "
    b"this before, because there is still some time left for them. What do you want to do next? It was not "
    b"really what they said, but I don't know why. When did you get there, and how long will it take? Sure, I "
    b"can do that. I'm sorry for the inconvenience. Here are the details: would be the following: - 1. 2. 3. "
    b"However, their other which could make some people think about these things again. this is the with from "
    b"that have will your our and for are not but you all any can had her was one his how man new now old see "
    b"two way who its let say she too use monday tuesday wednesday thursday friday saturday sunday january "
    b"february march april june july august september october november december  2024-2025-2026-T00:00:00 "
    b"https://www. .com/ @gmail.com null, true, false, "
    b'"name": "id": "status": "type": "date": "price": "number": "user_id": "error": "message": "result": ['
)
_CALL = {"id": "call_", "type": "function", "function": {"name": "get_", "arguments": '{"'}}
_CALLS: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": [_CALL]}
_RESULT: dict[str, Any] = {"role": "tool", "tool_call_id": "call_", "name": "get_", "content": '{"'}


def _message(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


_question, _answer = _message("user", "Hi! I"), _message("assistant", "I ")
_SAMPLES = b"".join(
    encode_columns([encode_message(message)[0] + STAMP for message in messages])
    for messages in (
        [_question, _answer, *[_CALLS, _RESULT, _answer, _question] * 3, _CALLS, _RESULT],
        [_question, _answer] * 8,
    )
)
EARLIER_CONTENT = _WORDS + _SAMPLES
"""Some everyday words of English, then sample messages in the format of a block. Trained dictionaries contain them."""
EARLIER = ZstdDictionary(EARLIER_CONTENT, zstandard.DICT_TYPE_RAWCONTENT)
"""The dictionary of blocks in the formats 3 and 4."""


@cache
def built_in() -> ZstdDictionary:
    """Return the dictionary of blocks in the formats 5 and 6: what people and models say every day, then `EARLIER`.

    Most of it is English; other languages have their most frequent words.
    """
    words = Path(__file__).with_name("words.txt").read_bytes().split()
    return ZstdDictionary(b" ".join(words) + b" " + EARLIER_CONTENT, zstandard.DICT_TYPE_RAWCONTENT)
