"""The rule of repeated messages: the framework's own answer, in linear time."""

from __future__ import annotations

from agent_framework import Message
from agent_framework._sessions import filter_new_messages
from hypothesis import given
from hypothesis import strategies as st

from redismem.adapters.agent_framework.history import _count_repeated, _identify

messages = st.builds(
    lambda role, text, id: Message(role, [text], message_id=id),
    *(st.sampled_from(["user", "assistant"]), st.sampled_from("ab"), st.none() | st.sampled_from("ab")),
)
alike = st.builds(lambda text: Message("user", [text]), st.sampled_from("ab"))
lists = st.lists(messages, max_size=6) | st.lists(alike, max_size=12)


@given(history=lists, saved=lists)
def test_the_new_messages_are_those_of_the_frameworks_own_rule(history: list[Message], saved: list[Message]) -> None:
    one_is_new = bool(history) and history[-1].role == "user" and history[-1].message_id is None
    repeated = _count_repeated([*map(_identify, history)], [*map(_identify, saved)], one_is_new=one_is_new)
    assert saved[repeated:] == filter_new_messages(history, saved)


class Counted:
    """An identity that counts its comparisons."""

    count = 0

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        Counted.count += 1
        return isinstance(other, Counted) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)


def test_ten_thousand_messages_cost_ten_times_a_thousand() -> None:
    counts = []
    for size in (1_000, 10_000):
        Counted.count = 0
        history = [Counted("a") for _ in range(size)]
        saved = [Counted("b" if at == size // 2 else "a") for at in range(size)]
        assert _count_repeated(history, saved, one_is_new=True) == size // 2
        counts.append(Counted.count)
    assert counts[1] <= 10.5 * counts[0] <= 105_000
