"""The words of later replies and of answers, and the beginning that two requests share."""

from hypothesis import given
from hypothesis import strategies as st

from redismem.cli.tune.words import LaterWords, all_words, content_words, equal_bytes, json_of


def test_only_words_that_were_said_before_count_and_rare_ones_count_more() -> None:
    said = [
        {"role": "system", "content": "Speak of hotels."},
        {"role": "user", "content": "My dog is called Rufus. I like tea."},
        {"role": "assistant", "content": "Noted, tea.\nGood."},
        {"role": "user", "content": "And what of my dog?"},
        {"role": "assistant", "content": "Rufus, your dog, needs hotels and tea in Lisbon."},
    ]
    later = LaterWords([json_of(message) for message in said], [True, False, False, False, False])
    found = later.of_reply(3, 4, 5)
    (rufus,), (tea,) = content_words("Rufus"), content_words("tea")
    assert found[rufus] > found[tea] > 0
    for word in ("hotels", "dog", "Lisbon"):  # pinned, in the request itself, never said before
        assert not content_words(word) & found.keys()
    assert content_words("Good") <= all_words([json_of(said[2])]), "an escaped line break is no part of a word"


def test_function_words_of_an_answer_do_not_count() -> None:
    assert content_words("the trip to Lisbon", "en") == content_words("trip Lisbon", "en")
    assert content_words("the") == set(content_words("the")) != set()


@given(st.binary(), st.binary(), st.binary())
def test_the_equal_beginning_is_found(start: bytes, one: bytes, other: bytes) -> None:
    before, request = start + one, start + other
    length = equal_bytes(before, request)
    assert before[:length] == request[:length]
    assert len(start) <= length <= min(len(before), len(request))
    assert before[length : length + 1] != request[length : length + 1] or length == min(len(before), len(request))
