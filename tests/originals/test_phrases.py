"""Phrases: whatever is said, each belongs to three people, and side by side they say nothing that fewer people said."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from redismem.originals.phrases import PEOPLE_COUNT, find_phrases, join_phrases, split_text

WORDS = ["river", "mountain", "Éclair", "x9", "of", "大阪", "👍"]
texts = st.lists(st.sampled_from(WORDS), max_size=24).map(" ".join)
people = st.lists(st.lists(texts, max_size=4), min_size=2, max_size=7).map(
    lambda spoken: {str(number): lines for number, lines in enumerate(spoken)}
)


def phrases_of(spoken: dict[str, list[str]]) -> list[bytes]:
    return find_phrases([split_text(line, True) for line in lines] for lines in spoken.values())


def runs(text: str, count: int) -> Iterator[tuple[str, ...]]:
    words = re.findall(r"[大阪]|[^\W大阪]+", text)
    return zip(*(words[at:] for at in range(count)), strict=False)


@given(people)
def test_each_phrase_is_in_the_texts_of_three_people(spoken: dict[str, list[str]]) -> None:
    for phrase in phrases_of(spoken):
        speakers = [person for person, lines in spoken.items() if any(phrase.decode() in line for line in lines)]
        assert len(speakers) >= PEOPLE_COUNT


@given(people, st.integers(0, 300))
def test_joined_phrases_hold_no_run_of_fewer_people(spoken: dict[str, list[str]], most_bytes: int) -> None:
    joined = join_phrases(phrases_of(spoken), spoken.values(), most_bytes)
    assert len(joined) <= most_bytes
    for count in (4, 8):
        runs_of = {person: {run for line in lines for run in runs(line, count)} for person, lines in spoken.items()}
        for run in runs(joined.decode(), count):
            assert sum(run in said for said in runs_of.values()) in (0, *range(PEOPLE_COUNT, len(spoken) + 1))


@given(people)
def test_what_three_people_share_whole_is_one_phrase(spoken: dict[str, list[str]]) -> None:
    line = "the invoice was sent to the wrong department again, so please send another one"
    shared = {f"also {number}": [line] for number in range(PEOPLE_COUNT)}
    assert line.encode() in phrases_of(spoken | shared)


def test_phrases_that_would_say_what_one_person_said_stand_apart() -> None:
    halves = ["my name is Ada", "Meyer of Hillside Road"]
    spoken = {str(number): halves for number in range(PEOPLE_COUNT)} | {"one": [f"{halves[0]}\0{halves[1]}"]}
    phrases = [half.encode() for half in halves]
    assert join_phrases(phrases[::-1], spoken.values(), 1_000) == phrases[1] + b"\0"
    others = [lines for person, lines in spoken.items() if person != "one"]
    assert join_phrases(phrases[::-1], others, 1_000) == b"\0".join(phrases) + b"\0"
    between = [phrases[1], phrases[0], b"thank you"]
    assert join_phrases(between, spoken.values(), 1_000) == b"\0".join([phrases[0], b"thank you", phrases[1], b""])


def test_a_long_line_costs_a_bounded_number_of_rounds() -> None:
    line = "to and fro " * 4_000
    (longest, *_) = phrases_of({str(number): [line] for number in range(PEOPLE_COUNT)})
    assert len(longest) <= 4 * 2**12
    assert line.encode().startswith(longest) or longest in line.encode()


def test_without_digits_no_phrase_has_one() -> None:
    assert split_text("a 7b, ٣", False) == [b"a", b" ", None, b",", b" ", None]
    assert split_text("a 7b, ٣", True) == [b"a", b" ", b"7b", b",", b" ", "٣".encode()]
