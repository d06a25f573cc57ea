"""Any text that a session id may be."""

from __future__ import annotations

import unicodedata

from hypothesis import strategies as st


def _fits(text: str) -> bool:
    if any(unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") for char in text):
        return False
    return text == text.strip() and len(text.encode()) <= 256


session_ids = st.text(min_size=1, max_size=64).filter(_fits)
