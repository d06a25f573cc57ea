"""Training: a dictionary contains nothing that fewer than three people have said, and still compresses."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import pytest
from support.dictionaries import STAMP, WORDS, Blocks, element, make_dictionary, person, sessions

from redismem.messages.encoding import encode_message
from redismem.messages.message import Message
from redismem.messages.values import encode_plain
from redismem.originals import training
from redismem.originals.blocks import BLOCK_COUNT, encode_block
from redismem.originals.built_in import EARLIER_CONTENT
from redismem.originals.columns import LARGE_BYTES
from redismem.originals.dictionaries import Dictionary
from redismem.originals.training import LARGEST_BYTES, train_dictionary

FIRST_NAMES = ["Ada", "Grace", "Linus", "Edsger", "Barbara", "Ken", "Radia", "Tim", "Maria", "Jonas", "Ines", "Pavel"]
LAST_NAMES = ["Meyer", "Novak", "Silva", "Tanaka", "Haddad", "Okafor", "Lindqvist", "Rossi", "Dubois", "Kowalski"]
STREETS = ["Lindenweg", "Hauptstrasse", "Riverroad", "Hillside", "Parkallee", "Seeblick"]
THINGS = ["order", "parcel", "invoice", "refund", "laptop", "jacket", "ticket", "printer"]
DOINGS = ["return", "replace", "cancel", "track", "repair", "exchange"]


def identity_lines(chosen: random.Random) -> list[str]:
    name = f"{chosen.choice(FIRST_NAMES)} {chosen.choice(LAST_NAMES)}"
    groups = " ".join(str(chosen.randint(10, 99)) for _ in range(4))
    born = f"{chosen.randint(1, 28)}.{chosen.randint(1, 12)}.{chosen.randint(1940, 2005)}"
    return [
        f"My name is {name} and I was born on {born}.",
        f"Please send it to {chosen.choice(STREETS)} {chosen.randint(1, 180)} in Berlin, that is where I live.",
        f"You can call me at +49 30 {groups} in the evening.",
    ]


def chat(seed: int, count: int = 48) -> list[str]:
    """Return a chat about orders, with three lines that identify the person."""
    chosen = random.Random(seed)

    def question() -> str:
        thing, other, doing = chosen.choice(THINGS), chosen.choice(THINGS), chosen.choice(DOINGS)
        return chosen.choice(
            [
                f"My {thing} has not come for {chosen.randint(2, 30)} days and nobody from the {other} team answers.",
                f"I would like to {doing} my {thing} because the {other} came with it by mistake.",
                f"Could you {doing} the {thing} until {chosen.choice(LAST_NAMES)} has left {chosen.choice(STREETS)}?",
            ]
        )

    def answer() -> str:
        return f"Thank you. I will {chosen.choice(DOINGS)} the {chosen.choice(THINGS)} for you and let you know today."

    lines = [answer() if at % 2 else f"{question()} {question()}" for at in range(count)]
    lines[4:9:2] = identity_lines(chosen)
    return lines


def blocks_of(lines: list[str]) -> list[list[bytes]]:
    elements = [element(line) for line in lines]
    return [elements[at : at + BLOCK_COUNT] for at in range(0, len(elements), BLOCK_COUNT)]


def runs(text: str, count: int) -> Iterator[tuple[str, ...]]:
    words = re.findall(r"\w+", text)
    return zip(*(words[at:] for at in range(count)), strict=False)


def trained(blocks: Blocks) -> bytes:
    content = train_dictionary(blocks)
    assert content is not None
    return content


def rare_runs(chats: dict[str, list[str]], content: bytes, count: int) -> set[tuple[str, ...]]:
    """Return the runs of words in a dictionary that one or two people have said."""
    runs_of = {name: {run for line in lines for run in runs(line, count)} for name, lines in chats.items()}
    inside = set(runs(content.replace(EARLIER_CONTENT, b"\0").decode("utf-8", "replace"), count))
    return {run for run in inside if 0 < sum(run in said for said in runs_of.values()) < 3}


def test_no_line_and_no_run_of_words_of_fewer_than_three_people_is_in_it() -> None:
    chats = {str(seed): chat(seed) for seed in range(40)}
    assert_nothing_of_few(chats, is_owner=False)


def test_nor_with_digits_where_sessions_have_owners() -> None:
    assert_nothing_of_few({str(seed): chat(seed) for seed in range(40)}, is_owner=True)


def assert_nothing_of_few(chats: dict[str, list[str]], is_owner: bool) -> None:
    blocks = {person(name, is_owner): blocks_of(lines) for name, lines in chats.items()}
    content = trained(blocks)
    assert not [line for seed in range(40) for line in chat(seed)[4:9:2] if line.encode() in content]
    for count in (4, 8):
        assert rare_runs(chats, content, count) == set()
    by_word = b"\0".join(line.encode() for line in chat(1))
    assert rare_runs(chats, by_word, 8), "the rule must find what one person has said"


def test_it_makes_blocks_of_others_smaller() -> None:
    dictionary = Dictionary(1, 0, trained({person(seed): blocks_of(chat(seed)) for seed in range(40)}))
    others = [block for seed in range(100, 110) for block in blocks_of(chat(seed))]
    with_one, without = (sum(len(encode_block(1, block, used)) for block in others) for used in (dictionary, None))
    assert with_one < 0.6 * without


def test_a_dictionary_takes_a_bounded_share_of_its_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    chats = {person(seed): blocks_of(chat(seed)) for seed in range(20)}
    sample_bytes = sum(len(each) for blocks in chats.values() for elements in blocks for each in elements)
    monkeypatch.setattr(training, "_LEAST_BYTES", 0)
    sizes = []
    for share in (20, 25):
        monkeypatch.setattr(training, "_SHARE", share)
        sizes.append(len(trained(chats)))
        assert sizes[-1] <= sample_bytes // share
    assert sizes[0] > sizes[1], "or there was room for all phrases"


@pytest.mark.parametrize("count", range(7))
def test_text_of_fewer_than_three_people_is_in_none(count: int) -> None:
    blocks = sessions(count, count=6)
    for number in range(count):
        blocks[person(number)].append([element({"Zanzibar": ["Quagga of Kalahari 77123", {"x": 4711}]})] * 9)
    content = trained(blocks)
    assert len(content) <= LARGEST_BYTES
    for text in (b"secret", b"77123", b"4711", encode_plain(4711)):
        assert text not in content
    for text in (b"Zanzibar", b"Quagga of Kalahari "):
        assert (text in content) is (count >= 3)
    assert any(word.encode() in content for word in WORDS)


def test_sessions_of_one_person_count_once() -> None:
    blocks = sessions(1, count=6)
    blocks[person(0)] += [[element("Quagga of Kalahari")] * 9] * 3
    assert b"Quagga" not in trained(blocks)


def test_messages_that_differ_in_numbers_alone_are_alike_and_no_number_is_in_it() -> None:
    blocks = sessions(1, count=6)
    phones = [4_930_000_000 + 7_919 * number for number in range(6)]
    for number, phone in enumerate(phones):
        blocks[person(number)].append([element({"contact": {"phone": phone, "floor": 4711, "is_home": True}})] * 9)
    content = trained(blocks)
    assert b"contact\x83\xa5phone\x00\xa5floor\x00\xa7is_home\xc3" in content
    assert not [number for number in (*phones, 4711) if encode_plain(number) in content]


def test_a_digit_is_in_none_as_three_sessions_may_be_of_one_person() -> None:
    blocks = sessions(1, count=6)
    for of_person in blocks.values():
        of_person.append([element("please ring 0301234567 or ٠٣٠١٢٣٤ or A99B in the evening")] * 9)
    content = trained(blocks).replace(EARLIER_CONTENT, b"")
    assert b" in the evening" in content
    for text in ("0301234567", "٠٣٠١٢٣٤", "A99B"):
        assert text.encode() not in content


def test_a_text_with_digits_that_three_owners_share_is_in_it() -> None:
    line = "the code of flight HAT012 is 4711"
    for owner_count in range(6):
        blocks = sessions(1, count=6)
        for number in range(5):
            is_owner = number < owner_count
            blocks[person(f"more {number}", is_owner)] = [[element(line), element({"key77": f"{number:x}"})] * 4]
        content = trained(blocks).replace(EARLIER_CONTENT, b"")
        for text in (b"HAT012 is 4711", b"key77"):
            assert (text in content) is (owner_count >= 3)


def test_metadata_opaque_and_large_messages_are_left_out() -> None:
    blocks = sessions(1, count=6)
    opaque = Message.opaque({"envelope": "Okapi of Kalahari"})
    large = {"role": "user", "content": "Impala of Kalahari " * (LARGE_BYTES // 10)}
    beside = Message("user", "Quagga of Kalahari", metadata={"team": "Eland of Kalahari"})
    for of_person in blocks.values():
        of_person.append([encode_message(each)[0] + STAMP for each in (opaque, large, beside)])
    content = trained(blocks)
    assert b"Quagga of Kalahari" in content
    for text in (b"Okapi", b"envelope", b"Impala", b"Eland", b"team"):
        assert text not in content


def test_where_words_have_no_spaces_a_letter_is_a_token() -> None:
    blocks = sessions(1, count=6)
    for number, of_person in enumerate(blocks.values()):
        of_person.append([element("大阪のホテルです" + "一二三四五六"[number] * 2)] * 9)
    content = trained(blocks)
    assert "大阪のホテルです".encode() in content
    assert "一".encode() not in content


def test_too_little_makes_none() -> None:
    assert train_dictionary({}) is None
    assert train_dictionary({person("a"): [[element("x")]]}) is None
    assert train_dictionary({person(number): [[element(f"{number:x}" * 40)]] for number in range(3)}) is None


def test_the_same_samples_make_the_same_dictionary() -> None:
    make_dictionary.cache_clear()
    first = make_dictionary(1).content
    make_dictionary.cache_clear()
    assert make_dictionary(1).content == first
