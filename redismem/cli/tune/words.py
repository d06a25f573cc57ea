"""The words of later replies and of answers, and the share of them that a request contains. No I/O."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from redismem.text.stems import stems

# Function words that an answer may hold beside what was asked for.
STOP = {
    "en": "a an the and are as at be by for from had has have her his in is it its my of on or our the to was we with",
    "de": "der die das den dem des ein eine einen einem und im in auf am an mit für von zu zum zur ist als",
    "es": "el la los las un una de del a en con por para que se su mi las y o",
    "ru": "и в на со с к о об от до за из по у",
    "zh": "的 了 是 在",
    "ar": "في من على إلى عن مع و",
}
TOKEN_BYTES = 4
"""The estimate of a token, in bytes of a request's JSON."""
# Of JSON: an escape must not become a part of the word behind it.
_ESCAPES = re.compile(r'\\+(?:u[0-9a-f]{4}|[nrtbf"/])?')


def content_words(answer: str, language: str | None = None) -> set[str]:
    """Return the stems of an answer's content words; `None` leaves out the function words of all languages."""
    lists = STOP.values() if language is None else [STOP.get(language, "")]
    stop = {stem for words in lists for word in words.split() for stem in stems(word)}
    found = set(stems(answer))
    return found - stop or found


def json_of(message: Any) -> str:
    """Return a message as a request has it."""
    return json.dumps(message, ensure_ascii=False)


@lru_cache(maxsize=32_768)
def words_of(text: str) -> frozenset[str]:
    """Return the stems of a text, or of a message's JSON."""
    return frozenset(stems(_ESCAPES.sub(" ", text)))


def all_words(texts: Iterable[str]) -> set[str]:
    """Return the stems of all texts."""
    return set[str]().union(*map(words_of, texts))


def equal_bytes(before: bytes, request: bytes) -> int:
    """Return the length of the beginning that two requests share, as a provider's prompt cache compares them."""
    least, most = 0, min(len(before), len(request))
    while least < most:
        middle = (least + most + 1) // 2
        if before[:middle] == request[:middle]:
            least = middle
        else:
            most = middle - 1
    return least


class LaterWords:
    """The words of each reply that were said earlier in the conversation, weighted by their rarity in it.

    Words of the request's own new messages and of pinned messages do not count, because each request has them.
    """

    def __init__(self, texts: Sequence[str], pinned: Sequence[bool]) -> None:
        """Take a conversation as the texts of its messages, and whether each is pinned."""
        self._words = [words_of(text) for text in texts]
        self._first_at = {word: at for at in reversed(range(len(texts))) for word in self._words[at]}
        self._first_place = {word: place for place in reversed(range(len(texts))) for word in self._words[place]}
        counts = Counter(word for words in self._words for word in words)
        self._weights = {word: math.log(len(texts) / count) for word, count in counts.items()}
        self._pinned = {
            word for words, is_pinned in zip(self._words, pinned, strict=True) if is_pinned for word in words
        }

    def of_reply(self, first: int, reply: int, end: int) -> dict[str, float]:
        """Return the weights of such words in a reply, from the places of its request, of the reply and of its end."""
        new = set[str]().union(*self._words[first:reply])
        later = set[str]().union(*self._words[reply:end]) - new - self._pinned
        return {word: self._weights[word] for word in later if self._first_at[word] < first}
