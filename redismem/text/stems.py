"""Stem the words of a text in any language, so that a question matches other forms of its words. No I/O."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

from redismem.text.normal_forms import normalize, remove_unseen

LONGEST_WORD_CHARS = 64
"""The number of characters that are read of a word, so that the cost of a word is bounded."""

_SHORTEST_STEM_CHARS = 3
# Marks inside words that `re` does not count as letters, and script blocks with many such marks.
_MARKS = (
    "\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670"
    "\u06d6-\u06dc\u0711\u0730-\u074a\u07a6-\u07b0\u0900-\u0963\u0966-\u0df3\u1037-\u103e\u3099\u309a"
)
# Thai to Tibetan, Burmese, Khmer, kana, Han; and Hangul, where particles are written into the word.
_WITHOUT_SPACES = (
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ebd\u0ec0-\u0ecd\u0edc-\u0edf\u0f40-\u0fbc\u1000-\u103f\u1050-\u109f"
    "\u1780-\u17d3\u3005-\u3007\u3041-\u309a\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff\uff66-\uff9d\U00020000-\U0003ffff"
)
# Each pattern repeats a single class, so no text makes it scan a letter twice.
_WORD = re.compile(f"[\\w{_MARKS}{_WITHOUT_SPACES}]+")
# Lower letters and digits by their place in ASCII; all else separates words.
_ASCII_LETTERS = "".join(chr(code).lower() if chr(code).isalnum() else " " for code in range(128))
_RUN = re.compile(f"[{_WITHOUT_SPACES}]+|[^{_WITHOUT_SPACES}]+")
# Han and Hangul: in these scripts, a single letter can be a word.
_SYLLABLE = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff]")
# Marks that stemming drops (accents, points of Hebrew and Arabic, the long stroke), and letters with a stroke or
# without a dot, which people often type as plain letters.
_UNSAID = dict.fromkeys(
    [*range(0x300, 0x370), *range(0x591, 0x5C8), *range(0x610, 0x61B), 0x640, *range(0x64B, 0x660), 0x670], ""
)
_PLAIN = str.maketrans(_UNSAID | {"ı": "i", "ł": "l", "ø": "o", "đ": "d"})
_VOWEL = re.compile("[aeiouy]")
_PLURAL_OR_PAST = re.compile("(?<=[^sui])s$|(?<=..ie)d$")
_SHORT_VERB = re.compile("[aeiou][^aeiouy](?:ing|ed)")
_CONSONANT_Y = re.compile("[^aeiouy]y$")
# Endings of English and similar languages. A stem need not be a word; it only has to be equal for all forms of a word.
_LATIN_ENDINGS = (
    *("amente", "iendo", "ingly", "ungen", "ment", "ness", "ando", "edly", "ing", "ion", "ung", "ado", "ada"),
    *("ido", "ida", "ed", "er", "en", "em", "ly", "ar", "ir"),
)
# Endings without accents: Cyrillic has и for й.
_ENDINGS = {
    "cyrillic": (
        *("иями", "ями", "ами", "ого", "его", "ому", "ему", "ыми", "ими", "ает", "ают", "ешь", "ете", "ала", "али"),
        *("ила", "или", "ать", "ять", "ить", "еть", "ия", "ие", "ию", "ии", "ов", "ев", "еи", "ои", "ыи", "ая"),
        *("яя", "ое", "ее", "ые", "ую", "юю", "ом", "ем", "ам", "ям", "ах", "ях", "ет", "ют", "ит", "ат", "ят"),
        *("ал", "ил", "а", "я", "о", "е", "ы", "и", "у", "ю", "ь"),
    ),
    "greek": ("ους", "εις", "ων", "ου", "ος", "ης", "ας", "ες", "οι", "αι", "α", "η", "ο", "ι", "ε", "υ", "ω"),
    "hebrew": ("ים", "ות", "ה"),
    "arabic": ("ات", "ون", "ين", "ها", "هم", "ة", "ه", "ي"),
    "indic": ("ों", "ें", "ाओं", "ियों", "ा", "ी", "े", "ि", "ो", "ु", "ू", "ं"),
}
_SCRIPTS = (
    (0x0370, 0x0400, "greek"),
    (0x0400, 0x0530, "cyrillic"),
    (0x0590, 0x0600, "hebrew"),
    (0x0600, 0x0780, "arabic"),
    (0x0900, 0x0980, "indic"),
)
_ARTICLES = ("وال", "بال", "كال", "فال", "ال")


def stems(text: str) -> Iterator[str]:
    """Yield the stems of a text's words in order: without case, accents and the endings of their script.

    Text in a script without spaces yields every pair of adjacent letters, and each Chinese character and Korean
    syllable. A single letter from a to z yields nothing. The time is linear in the length of the text.
    """
    if text.isascii():  # most texts are
        for word in ascii_words(text):
            if len(word) > 1 or word.isdigit():
                yield _latin(word[:LONGEST_WORD_CHARS])
        return
    for word in split_words(text):
        yield from _stems_of_word(word)


def ascii_words(text: str) -> list[str]:
    """Return the runs of letters and digits in an ASCII text, in lower case. A pattern would take twice the time."""
    return text.translate(_ASCII_LETTERS).split()


def split_words(text: str) -> list[str]:
    """Return the words of any text as it writes them. In scripts without spaces they are whole clauses."""
    return _WORD.findall(normalize("NFKC", remove_unseen(text)).replace("_", " "))


def _stems_of_word(word: str) -> Iterator[str]:
    if word.isascii():
        if len(word) > 1 or word.isdigit():
            yield _latin(word[:LONGEST_WORD_CHARS].lower())
    else:
        for run in _RUN.findall(word):
            yield from _stems_of(run)


def _stems_of(run: str) -> Iterator[str]:
    if _is_without_spaces(run[0]):
        yield from (run[at : at + 2] for at in range(len(run) - 1))
        yield from _SYLLABLE.findall(run) if len(run) > 1 else run
    elif stem := _stem(run[:LONGEST_WORD_CHARS]):
        yield stem


def _is_without_spaces(char: str) -> bool:
    return char >= "\u0e00" and _RUN.match(char + " ").group() == char  # type: ignore[union-attr] # it always matches


@lru_cache(maxsize=16_384)
def _stem(word: str) -> str:
    plain = unicodedata.normalize("NFKD", word).casefold().translate(_PLAIN)
    if not plain or plain.isascii():
        return _latin(plain) if len(plain) > 1 or plain.isdigit() else ""
    script = next((name for first, end, name in _SCRIPTS if first <= ord(plain[0]) < end), None)
    if script == "arabic":
        article = next((article for article in _ARTICLES if plain.startswith(article)), "")
        plain = plain[len(article) :] if len(plain) - len(article) >= _SHORTEST_STEM_CHARS else plain
    return _strip_ending(plain, _ENDINGS.get(script or "", ()))


def _strip_ending(word: str, endings: tuple[str, ...], shortest_chars: int = _SHORTEST_STEM_CHARS) -> str:
    for ending in endings:
        if word.endswith(ending) and len(word) - len(ending) >= shortest_chars:
            return word[: -len(ending)]
    return word


@lru_cache(maxsize=16_384)
def _latin(word: str) -> str:
    if not word.isalpha():
        return word
    if len(word) > _SHORTEST_STEM_CHARS:
        word = _PLURAL_OR_PAST.sub("", word)
        if _SHORT_VERB.fullmatch(word):
            return word[:2] + "e"
        cut = _strip_ending(word, _LATIN_ENDINGS)
        word = cut if _VOWEL.search(cut) else word
        if len(word) > _SHORTEST_STEM_CHARS and word[-1] in "eao":
            word = word[:-1]
        if len(word) > _SHORTEST_STEM_CHARS and word[-1] == word[-2]:
            word = word[:-1]
    return word[:-1] + "i" if _CONSONANT_Y.search(word) else word


# Stop words: the stems of question words, and others. Question words carry no topic, but would weigh most, because they
# are rare in statements. Stop words are a sixth of the stems in English texts. No stop word of one language is a word
# with a topic in another language of this list.
QUESTION_STEMS = frozenset(
    stem
    for stem in stems(
        "what when where which who whom whose why how did do does is are was were has have had would could should can "
        "will the a an of to in on at for and or it its this that these those i me my you your he his him she her they "
        "their them we our us with from by about as be been not any some tell remember said say mention mentioned "
        "was wann wo wer wie warum welche welcher welches hat haben ist sind der das ein eine ich du er sie es "
        "wir und oder von zu mit que quand où qui comment pourquoi quel quelle est sont le la les un une des du de et "
        "ou je tu il elle nous vous qué cuándo dónde quién cómo cuál por el los las una es y o yo me mi tu su"
    )
)
