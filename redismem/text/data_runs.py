"""Replace data URLs and long runs of base64 or hex in texts, because they take the space of words. No I/O."""

from __future__ import annotations

import re

PLACEHOLDER = "[data]"
SHORTEST_RUN_CHARS = 64
"""The shortest unbroken run that counts as data.

A SHA-256 digest in hex has this length; a UUID or git commit is shorter.
"""

_BASE64 = "[A-Za-z0-9+/_-]"
_RUN = f"{_BASE64}{{{SHORTEST_RUN_CHARS},}}+"
_BREAK = r"(?:\s|\\[nr])++"
_URL_CHARS = "[A-Za-z0-9+/_=%~:@&$#-]*+"
# In JSON a slash may be written as \/, and a line break as \n. Repeats are possessive or bounded, and a run only starts
# where the character before is not of a run. So each character is read a bounded number of times.
_DATA_URL = re.compile(
    r"data:(?<![A-Za-z0-9]data:)"
    r"(?:[a-z]{1,20}\\?/[A-Za-z0-9.+-]{1,100}(?:;[A-Za-z0-9.+=-]{1,64}){0,8}|;base64),"
    rf"{_URL_CHARS}(?:\\/{_URL_CHARS})*+"
)
_RUNS = re.compile(rf"(?<!{_BASE64}){_RUN}(?:{_BREAK}{_RUN})*+(?:{_BREAK}{_BASE64}{{1,63}}+={{1,2}}|={{0,2}})")
_MARKS = bytes(chr(byte).isascii() and (chr(byte).isalnum() or chr(byte) in "+/_-") for byte in range(256))
_MARKS_OF_RUN = bytes([True]) * SHORTEST_RUN_CHARS
_TOKEN = re.compile("[A-Za-z0-9]{13,}")
_WORD = re.compile("(?:[A-Z]?[a-z]+|[A-Z]+|[0-9]+)")
_LONGEST_WORD_CHARS = 24


def replace_data(text: str) -> str:
    """Replace each data URL, and each unbroken run of 64 or more characters of base64 or hex, by `[data]`.

    Long paths and names that consist of words stay. The time is linear in the length of the text.
    """
    if "data:" in text:
        text = _DATA_URL.sub(PLACEHOLDER, text)
    # Searching bytes is ten times as fast as the pattern, and almost no text contains a run.
    if _MARKS_OF_RUN in text.encode("latin-1", "replace").translate(_MARKS):
        text = _RUNS.sub(_replace_run, text)
    return text


def _replace_run(match: re.Match[str]) -> str:
    return PLACEHOLDER if _is_data(match[0]) else match[0]


def _is_data(run: str) -> bool:
    """True unless half of the run consists of words, numbers and short identifiers between `-`, `_`, `/` and `+`."""
    data_chars = sum(len(token) for token in _TOKEN.findall(run) if not _is_word(token))
    return 2 * data_chars >= len(run)


def _is_word(token: str) -> bool:
    return len(token) <= _LONGEST_WORD_CHARS and _WORD.fullmatch(token) is not None
