"""The best matches again: words that stand together, and the speaker whom a question names."""

from __future__ import annotations

from redismem.originals.signatures import stem_hash
from redismem.recall.matches import SCALE
from redismem.recall.proximity import Proximity, read_line
from redismem.text.stems import stems

LINES = {
    1: "user: The support of the whole group was great.",
    2: "user: I went to the support group.",
    3: "user: Nothing of it.",
    4: "user Nora: A group.",
    5: "user: A group, said Nora.",
}
SCORES = dict.fromkeys(LINES, 3.0 * SCALE)


def order(query: str, limit: int | None = None, max_tokens: int | None = None) -> list[int]:
    words = [[stem_hash(stem)] for stem in stems(query)]
    proximity = Proximity(words, [SCALE] * len(words), SCORES)
    lines = {seq: read_line(line) for seq, line in LINES.items() if seq != 3}
    return proximity.order([*LINES], lines.get, limit, max_tokens)


def test_words_side_by_side_come_first_then_words_near_each_other_and_equal_ones_keep_their_order() -> None:
    assert order("support group") == order("group support") == [2, 1, 3, 4, 5]
    assert order("support") == [1, 2, 3, 4, 5]


def test_the_speaker_who_is_named_comes_before_one_who_names_him() -> None:
    assert order("Nora") == [4, 1, 2, 3, 5]


def test_only_what_a_budget_considers_is_ordered_again_and_nothing_with_a_limit_and_a_budget() -> None:
    assert order("support group", max_tokens=99) == [2, 1, 3, 4, 5]
    assert order("support group", max_tokens=49) == [1, 2, 3, 4, 5]
    assert order("support group", limit=2) == [2, 1, 3, 4, 5]
    assert order("support group", limit=2, max_tokens=700) == [1, 2, 3, 4, 5]


def test_a_word_far_into_a_message_is_not_read() -> None:
    assert read_line("user: " + "so " * 1_000 + "group").words.count(chr(stem_hash("group"))) == 0
    assert read_line("user Nora Smith: hi") == (
        "".join(chr(stem_hash(stem)) for stem in stems("Nora Smith")),
        chr(stem_hash("hi")),
    )
