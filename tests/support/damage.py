"""Kinds of damage to a session, each with the invariant it breaks and the session it needs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from redismem import Memory
from redismem.context.results import Summary
from redismem.messages.gaps import encode_gap
from redismem.protocol.session import pages
from redismem.recall.originals import Originals
from support.checks import CANARY
from support.stored import set_counters
from support.turns import TURN, put_turn

Harm = Callable[[Any, Any], Awaitable[Any]]


def field(name: str, value: object) -> Harm:
    return lambda raw, keys: raw.hset(keys.state, name, value)


def counter(name: str, value: object) -> Harm:
    return lambda raw, keys: set_counters(raw, keys.state, **{name: value})


def delete_field(name: str) -> Harm:
    return lambda raw, keys: raw.hdel(keys.state, name)


def entry(index: str, score: int = 1) -> Harm:
    return lambda raw, keys: raw.zadd(getattr(keys.shard, index), {keys.session: score})


def delete_entry(index: str) -> Harm:
    return lambda raw, keys: raw.zrem(getattr(keys.shard, index), keys.session)


def damaged_turn(harm: Harm) -> Harm:
    """Return the harm to a session with a turn that runs."""

    async def damage(raw: Any, keys: Any) -> None:
        await put_turn(raw, keys)
        await harm(raw, keys)

    return damage


def summary(first_seq: int, last_seq: int, epoch: str) -> bytes:
    return Summary(f"{epoch}:1", CANARY, first_seq, last_seq, 1, 2, "m", 3, 4, ()).encode()


async def summaries_that_overlap(raw: Any, keys: Any) -> None:
    epoch = (await raw.hget(keys.state, "epoch")).decode()
    await raw.delete(keys.messages)
    texts = {"summary:1": summary(1, 2, epoch), "summary:2": summary(2, 2, epoch), "summaries_count": 2}
    await raw.hset(keys.state, mapping=texts)
    await set_counters(raw, keys.state, first_seq=3, tokens=0)


async def a_summary_beyond_the_window(raw: Any, keys: Any) -> None:
    epoch = (await raw.hget(keys.state, "epoch")).decode()
    await raw.hset(keys.state, mapping={"summary:1": summary(1, 3, epoch), "summaries_count": 1})


async def a_summary_of_another_epoch(raw: Any, keys: Any) -> None:
    await raw.lpop(keys.messages)
    await raw.hset(keys.state, mapping={"summary:1": summary(1, 1, "9-zz"), "summaries_count": 1})
    await set_counters(raw, keys.state, first_seq=2, tokens=0)


async def an_append_remembered_twice(raw: Any, keys: Any) -> None:
    ids = await raw.hget(keys.state, "ids_a")
    await raw.hset(keys.state, "ids_a", ids + ids[1:13])


async def a_message_too_many(raw: Any, keys: Any) -> None:
    await raw.rpush(keys.messages, await raw.lindex(keys.messages, 0))


async def a_longer_window(raw: Any, keys: Any) -> None:
    for _ in range(11):
        await a_message_too_many(raw, keys)
    await set_counters(raw, keys.state, message_count=2 + 11)


async def too_many_summaries(raw: Any, keys: Any) -> None:
    epoch = (await raw.hget(keys.state, "epoch")).decode()
    texts = {f"summary:{seq}": summary(seq, seq, epoch) for seq in (1, 2, 3)}
    await raw.hset(keys.state, mapping={**texts, "summaries_count": 3})
    await set_counters(raw, keys.state, first_seq=4, message_count=5)


async def a_pin_ahead_of_its_place(raw: Any, keys: Any) -> None:
    element = await raw.lindex(keys.messages, 0)
    await raw.hset(keys.state, mapping={"pinned:99": element, "pins": f"1 {len(element)}"})


async def a_gap_that_is_not_noted(raw: Any, keys: Any) -> None:
    element = await raw.lindex(keys.messages, 0)
    await raw.lset(keys.messages, 0, encode_gap(1) + element[-9:])


HARM_TO_A_TURN: dict[str, Harm] = {
    "a turn that no index has": delete_entry("turns"),
    "a turn of a message that does not exist": field("turn", TURN.format(3)),
    "a long reason of a stop": field("stop", CANARY * 20),
    "a log without an expiry": lambda raw, keys: raw.persist(keys.live),
    "a log that outlives the session": lambda raw, keys: raw.pexpireat(keys.live, 2**42),
    "a log with half a line": lambda raw, keys: raw.append(keys.live, '{"type"'),
    "a log with a line that is no event": lambda raw, keys: raw.append(keys.live, "[]\n"),
    "ended turns that expire earlier": lambda raw, keys: raw.pexpire(keys.turned, 99_999),
    "ended turns without an expiry": lambda raw, keys: raw.persist(keys.turned),
    "half a record of an ended turn": lambda raw, keys: raw.append(keys.turned, CANARY[:7]),
    "an ended turn of later messages": lambda raw, keys: raw.setrange(keys.turned, 27, b"9"),
    "an ended turn without an outcome": lambda raw, keys: raw.setrange(keys.turned, 31, b"0"),
    "a turn that waits for ever": lambda raw, keys: raw.persist(keys.waiters),
}
HARM: dict[str, tuple[str, str, Harm]] = {
    "a message too few": ("I1", "window", lambda raw, keys: raw.lpop(keys.messages)),
    "a message too many": ("I1", "window", a_message_too_many),
    "a message that is none": ("I1", "window", lambda raw, keys: raw.lset(keys.messages, 0, CANARY)),
    "no messages": ("I1", "window", lambda raw, keys: raw.delete(keys.messages)),
    "no state": ("I1", "window", lambda raw, keys: raw.delete(keys.state)),
    "no epoch": ("I1", "window", delete_field("epoch")),
    "no counters": ("I1", "window", delete_field("counters")),
    "no number": ("I1", "window", counter("first_seq", CANARY)),
    "a count that is no number": ("I1", "overdue", field("attempts", CANARY)),
    "a count of many digits": ("I1", "overdue", field("attempts", "9" * 5_000)),
    "tokens of many digits": ("I1", "window", counter("tokens", int("9" * 4_000))),
    "a state of a foreign type": ("I1", "window", lambda raw, keys: raw.set(keys.state, CANARY)),
    "messages of a foreign type": ("I1", "window", lambda raw, keys: raw.set(keys.messages, CANARY)),
    "an append remembered twice": ("I2", "window", an_append_remembered_twice),
    "more remembered than appended": ("I2", "window", field("ids_a", b"b1234567abc\x7f\xff")),
    "remembered in no order": ("I2", "window", field("ids_a", b"x")),
    "half an append remembered": ("I2", "window", field("ids_c", b"12345")),
    "in two queues": ("I3", "overdue", entry("dead")),
    "in a queue it does not name": ("I3", "window", entry("overdue")),
    "names a queue it is not in": ("I3", "overdue", delete_entry("overdue")),
    "lost wake-up": ("I4", "dropped", field("dropped_seq", 1)),
    "too many summaries, and nobody knows": ("I4", "window", too_many_summaries),
    "an epoch that no counter gave": ("I5", "window", field("epoch", "9999-ab")),
    "a fence of many digits": ("I5", "leased", field("fence", "9" * 5_000 + "-ab")),
    "a fence older than the epoch": ("I5", "leased", field("fence", "0001-ab")),
    "summaries that overlap": ("I6", "window", summaries_that_overlap),
    "a summary beyond the window": ("I6", "window", a_summary_beyond_the_window),
    "a summary of another epoch": ("I7", "window", a_summary_of_another_epoch),
    "summaries miscounted": ("I7", "summarised", field("summaries_count", 7)),
    "messages expire later": ("I8", "window", lambda raw, keys: raw.pexpire(keys.messages, 99_999)),
    "messages never expire": ("I8", "window", lambda raw, keys: raw.persist(keys.messages)),
    "the window over its limit": ("I9", "window", a_longer_window),
    "tokens": ("I10", "window", counter("tokens", 1)),
    "too many attempts": ("I11", "backoff", field("attempts", 5)),
    "a failure that is none": ("I11", "backoff", field("failure", f"1 2 {CANARY}\n")),
    "dead and never died": ("I11", "dead", delete_field("deaths")),
    "deaths that are no number": ("I1", "dead", field("deaths", CANARY)),
    "a lease without a fence": ("I11", "leased", delete_field("fence")),
    "a fence without a lease": ("I11", "overdue", field("fence", "999-ab")),
    "listed at another time": ("I12", "window", entry("active")),
    "chosen and not noted": ("I12", "window", entry("evictions")),
    "pins miscounted": ("I14", "window", field("pins", "3 7")),
    "pins that are no count": ("I14", "window", field("pins", CANARY)),
    "pinned ahead of its place": ("I14", "window", a_pin_ahead_of_its_place),
    "a gap that is not noted": ("I14", "window", a_gap_that_is_not_noted),
    "noted and not chosen": ("I12", "window", counter("evicting", "idle")),
    "a turn that cannot be read": ("I16", "window", field("turn", f"r {CANARY}")),
    "a turn in the index that does not run": ("I16", "window", entry("turns")),
    "a stop of no turn": ("I16", "window", field("stop", CANARY)),
    **{name: ("I16", "window", damaged_turn(harm)) for name, harm in HARM_TO_A_TURN.items()},
}


async def put_block_aside(memory: Memory, session_id: str, number: int) -> None:
    """Put a block of originals into quarantine, as a turn does whose recall needs it."""
    keys = memory.store.keys.session(session_id)
    blocks = await memory.store.run(pages.blocks(keys, [number]))
    await Originals(memory.store, keys).quarantine(blocks)
