"""Bring text into a Unicode normal form in linear time, without the characters that a reader does not see. No I/O."""

from __future__ import annotations

import re
import unicodedata
from typing import Literal

# CPython sorts the marks on a letter by insertion, so a run of them in the wrong order would take quadratic time.
# Pieces begin at ASCII and ideographic punctuation, which never joins with what is before it, or after 256 others.
_PIECE = re.compile("[\0-\x7f\u3000-\u3002]*[^\0-\x7f\u3000-\u3002]{0,256}")
# Soft hyphens, joiners, spaces without width, marks of direction, and selectors of variants.
_UNSEEN = re.compile("[\xad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]+")

REGION_FLAG = "\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{4,6}\U000e007f"
"""A pattern of the flag of a part of a country, such as Scotland: invisible letters name it."""


def normalize(form: Literal["NFC", "NFKC"], text: str) -> str:
    """Return the text in this normal form. Only within 256 characters without ASCII may one pair stay apart."""
    if text.isascii() or unicodedata.is_normalized(form, text):  # the check alone is linear
        return text
    return "".join(unicodedata.normalize(form, piece) for piece in _PIECE.findall(text))


def remove_unseen(text: str) -> str:
    """Return the text without characters that have no width: they hide in words, and no reader types them."""
    return text if text.isascii() else _UNSEEN.sub("", text)


def fold_case(text: str) -> str:
    """Fold a text for comparison: casefolded and composed."""
    return normalize("NFC", normalize("NFC", text).casefold())
