"""Plans of edits: what each expects to be as read, and what it changes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.edited import VIEW

from redismem.context.results import Summary
from redismem.messages.message import STAMP_BYTES, Message
from redismem.protocol import scripts
from redismem.protocol.keys import Keys
from redismem.protocol.session import bodies, ending, forget, leaving, replacing
from redismem.protocol.session.calls import SessionCalls
from redismem.protocol.session.cuts import Cut
from redismem.protocol.session.edits import BlockChange, Edit, edit
from redismem.settings.settings import Settings

CALLS = SessionCalls(Keys("shop", 8).session("user-42"), Settings())
FIRST, PINNED, THIRD = VIEW.context.messages[0], VIEW.context.pinned[0], VIEW.context.messages[1]
ELEMENTS = VIEW.elements
NEW = ending.encode(CALLS, [{"role": "user", "content": "new"}], None)
SUMMARY = Summary("9-ab:1-4", "told", 1, 4, 4, 2, "m", 3, 4, ())


def replaced(old: Message) -> replacing.Replacement:
    return replacing.replacement(CALLS, old, {"role": "user", "content": "new"})


PLANS: dict[str, tuple[Callable[[], Edit], str]] = {
    "prune": (lambda: leaving.prune(VIEW, VIEW.context.messages), "edited, place 3, no version"),
    "archive": (lambda: leaving.archive(VIEW, VIEW.context.messages, {}), "edited, place 3, no version"),
    "pop": (lambda: ending.pop(VIEW, [THIRD]), "last_seq, edited, place -1, use"),
    "pop exactly": (lambda: ending.pop_exactly(VIEW, [THIRD], None), "last_seq, edited, place -1, use"),
    "rewrite": (lambda: ending.rewrite(VIEW, 6, NEW), "last_seq, edited, place -1, use"),
    "rewrite behind the window": (
        lambda: ending.rewrite(VIEW, 3, NEW, Cut(3)),
        "last_seq, edited, committed, place -1, use",
    ),
    "replace": (lambda: replacing.replace(VIEW, FIRST, replaced(FIRST)), "replaced, use"),
    "replace that expects": (
        lambda: replacing.replace(VIEW, FIRST, replaced(FIRST), if_last_seq=True),
        "last_seq, replaced, use",
    ),
    "replace with its original": (
        lambda: replacing.replace(VIEW, FIRST, replaced(FIRST), BlockChange(0, b"old", b"new", b"sign")),
        "replaced, blocks, use",
    ),
    "unpin": (lambda: replacing.replace(VIEW, PINNED, replacing.unpin(PINNED)), "replaced, use"),
    "forget": (lambda: forget.forget(VIEW, {5, 6}, {}, {}), "edited, committed, replaced"),
    "forget a summary": (lambda: forget.forget(VIEW, set(), {}, {SUMMARY: None}), "edited, committed"),
    "move of bodies": (
        lambda: bodies.move(VIEW, [bodies.Shortened(1, 6, ELEMENTS[1], b"shorter", -40)]),
        "edited, replaced, no token",
    ),
}
"""Each plan, and what it expects to be as read; whether it counts as use, leaves the version, or is not remembered."""


@pytest.mark.parametrize("what", PLANS)
def test_a_plan_expects_what_it_has_read(what: str) -> None:
    plan, expected = PLANS[what]
    given = edit(CALLS, VIEW, plan(), bool).named
    assert given is not None
    assert (given["epoch"], given["first_seq"]) == ("9-ab", 5)
    found = [name for name in ("last_seq", "edited", "committed") if given[name] != "*"]
    found += [f"place {place}"] if isinstance(place := given["place"], int) else []
    replaced_end, blocks_end, *_ = map(int, given["starts"].split())
    first = len(scripts.load("edit").arguments) + 1
    found += ["replaced"] * (replaced_end > first) + ["blocks"] * (blocks_end > replaced_end)
    found += ["use"] * (given["limits"] != "-") + ["no version"] * (given["nonce"] == "-")
    found += ["no token"] * (given["token"] == b"")
    assert ", ".join(found) == expected
    seen = {"-": b"", 3: ELEMENTS[3], -1: ELEMENTS[3]}
    assert given["seen"] == seen[given["place"]]
    for name, value in (("last_seq", 8), ("edited", "v-7"), ("committed", "-")):
        assert given[name] in ("*", value)


def counted(what: str) -> str:
    named = edit(CALLS, VIEW, PLANS[what][0](), bool).named
    assert named is not None
    return str(named["changes"])


def test_the_counters_follow_the_elements() -> None:
    """The window has seqs 5 to 8: a message of 50 tokens, a pinned one, a message of 70 tokens, and a gap."""
    assert counted("prune") == "0 -120 -2 0 0"
    assert counted("pop") == "1 -70 0 -2 0", "one gap for the message, the gap behind it, and the pop"
    assert counted("rewrite") == f"1 {NEW.tokens - 70} -1 -2 0", "one gap for three seqs, without a pinned one"
    assert counted("forget") == "0 -50 0 -1 0", "one gap for a message and a pinned one"
    assert counted("unpin") == "0 60 -1 0 0"
    assert counted("replace") == f"0 {replaced(FIRST).message.tokens - 50} 0 0 0"


def test_large_messages_are_counted_with_their_stamp() -> None:
    large = ending.encode(CALLS, [{"role": "user", "content": "x" * 5000}], None)
    named = edit(CALLS, VIEW, ending.rewrite(VIEW, 8, large), bool).named
    assert named is not None
    assert named["changes"].endswith(f" {len(large.elements[0]) + STAMP_BYTES}")


def test_pinned_messages_that_leave_are_kept_together() -> None:
    for plan in (leaving.prune(VIEW, VIEW.context.messages), leaving.archive(VIEW, VIEW.context.messages, {})):
        assert plan.sets[b"pinned:6"] == ELEMENTS[1]
        assert (plan.pinned_count, plan.pinned_bytes) == (0, 0), "they are still pinned"
