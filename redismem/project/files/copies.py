"""Export a session and restore it, with its policy and owner, and every message and summary at its original seqs.

An id that begins with the session's epoch is exported without the epoch, because the restored session gets a new one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from functools import partial
from typing import Any, NamedTuple

from redismem.concurrency.offload import run_apart
from redismem.context.context import Context
from redismem.context.info import Policy
from redismem.context.results import Summary
from redismem.errors import InvalidItem, InvalidSessionId, InvalidSettings
from redismem.messages.decoding import StoredMessages
from redismem.messages.encoding import encode_message
from redismem.messages.gaps import fill_gaps, last_seqs
from redismem.messages.message import Message
from redismem.originals.fields import encode_fields
from redismem.protocol import layout
from redismem.protocol.owners import encode_owner
from redismem.protocol.policy import encode_policy
from redismem.protocol.session.quarantine import new_epoch
from redismem.protocol.session.restore import Restoration
from redismem.store.restoring import bring_in
from redismem.store.store import Store

PLACES_LIMIT = 100_000
"""The maximum seq in a copy. No conversation is longer."""
_NUMBERS = ("first_seq", "last_seq", "start_ms", "end_ms", "tokens", "created_ms")
_WINDOW = ("first_seq", "last_seq", "total_messages")
_MOST = 1 << 53


class Copy(NamedTuple):
    """A session with summaries, a policy or an owner.

    The window begins at `first_seq`; `last_seq` is the last seq ever assigned. `policy` is as in the counters, `owner`
    as in the state.
    """

    messages: Sequence[Message]
    summaries: Sequence[Summary]
    first_seq: int
    last_seq: int
    total_messages: int
    policy: str = ""
    owner: bytes = b""
    zone: str | None = None


def describe(context: Context, messages: Sequence[Message], policy: Policy, owner: str | None) -> dict[str, Any]:
    """Return the part of an export entry about summaries, policy, owner, and the places of messages."""
    rules = {} if policy == Policy() else {"policy": asdict(policy)}
    return (rules if owner is None else rules | {"owner": owner}) | {
        "window": {name: getattr(context, name) for name in _WINDOW},
        "summaries": [_describe_summary(summary, context.epoch) for summary in context.summaries],
        "places": [[message.seq, message.stored_ms, message.tokens] for message in messages],
    }


def _describe_summary(summary: Summary, epoch: str) -> dict[str, Any]:
    values = {field.name: getattr(summary, field.name) for field in fields(summary)}
    ids = [_unbind_id(each, epoch) for each in summary.message_ids]
    return values | {"id": _unbind_id(summary.id, epoch), "message_ids": ids}


def _unbind_id(id: str, epoch: str) -> str:
    return id.removeprefix(epoch) if id.startswith(f"{epoch}:") else f"={id}"


def _bind_id(id: str, epoch: str) -> str:
    return f"{epoch}{id}" if id.startswith(":") else id[1:]


def parse_copy(entry: Mapping[str, Any], messages: Sequence[Message]) -> Copy:
    """Parse the output of `describe`. Raises InvalidItem, and the errors of decoding a foreign format."""
    window, places = entry["window"], entry["places"]
    first_seq, last_seq, total = (_check_number(window[name]) for name in _WINDOW)
    if (
        type(entry["summaries"]) is not list
        or len(window) != len(_WINDOW)
        or len(places) != len(messages)
        or not 0 < first_seq <= last_seq + 1 <= PLACES_LIMIT
        or total > last_seq
    ):
        raise InvalidItem("the places of a conversation's messages are invalid")
    placed, before = [], 0
    for message, (seq, stored_ms, tokens) in zip(messages, places, strict=True):
        if not before < _check_number(seq) <= last_seq:
            raise InvalidItem("the messages of a conversation are not in order")
        before = seq
        payload, beside = message.to_openai(), message.beside
        placed.append(Message.restored(payload, beside, seq, _check_number(tokens), _check_number(stored_ms), ""))
    summaries = [_parse_summary(each) for each in entry["summaries"]]
    covered = 0
    for summary in summaries:
        if not covered < summary.first_seq <= summary.last_seq < first_seq:
            raise InvalidItem("the summaries of a conversation are not in order")
        covered = summary.last_seq
    policy, owner = Policy(**entry.get("policy", {})), _parse_owner(entry.get("owner"))
    return Copy(placed, summaries, first_seq, last_seq, total, _encode_policy(policy), owner, policy.zone)


def _parse_owner(given: Any) -> bytes:
    try:
        return b"" if given is None else encode_owner(given)
    except InvalidSessionId as refused:
        raise InvalidItem(refused.text) from None


def _encode_policy(policy: Policy) -> str:
    try:
        return encode_policy(policy)
    except InvalidSettings as refused:
        raise InvalidItem(refused.text) from None


def _parse_summary(given: Mapping[str, Any]) -> Summary:
    texts = (given["id"], given["text"], given["model"], *given["message_ids"])
    if any(type(text) is not str for text in texts) or any(not _is_id(each) for each in (texts[0], *texts[3:])):
        raise InvalidItem("a text or id of a summary is invalid")
    for name in _NUMBERS:
        _check_number(given[name])
    return Summary(**{**given, "message_ids": tuple(given["message_ids"])})


def _is_id(text: str) -> bool:
    return text[:1] in (":", "=")


def _check_number(value: Any) -> int:
    if type(value) is not int or not 0 <= value < _MOST:
        raise InvalidItem("a number of a conversation is invalid")
    return value


async def put(store: Store, session_id: str, copy: Copy) -> None:
    """Create the session from the copy. Raises SessionExists, StoreUnavailable."""
    keys = store.keys.session(session_id)
    epoch = await store.run(new_epoch(keys))
    put_ms = await store.server_time_ms()
    elements = {message.seq: _element(message) for message in copy.messages}
    window = fill_gaps(elements, copy.first_seq, copy.last_seq, _stamp(put_ms))
    earlier = [message for message in copy.messages if message.seq < copy.first_seq]
    originals: dict[bytes, bytes] = {}
    # Pinned messages are stored without originals.
    if not all(message.pinned for message in earlier):
        kept = fill_gaps(elements, earlier[0].seq, copy.first_seq - 1, _stamp(put_ms))
        # In a thread: compressing ten thousand messages takes seconds.
        originals = await run_apart(
            store.transport, partial(encode_fields, earlier[0].seq, kept, epoch, zone=copy.zone)
        )
    state = _state(copy, epoch, elements, earlier, bool(originals))
    messages = StoredMessages(window, 0, epoch, last_seqs(window, copy.last_seq)).messages()
    restoration = Restoration((), epoch, copy.first_seq, messages, window, 0, state, copy.summaries, copy.policy)
    await bring_in(store, keys, restoration, originals)


def _state(
    copy: Copy, epoch: str, elements: Mapping[int, bytes], earlier: Sequence[Message], with_originals: bool
) -> dict[bytes, bytes]:
    """Return the fields of the state for the owner, summaries, pinned and removed messages."""
    found: dict[bytes, bytes] = {layout.OWNER: copy.owner} if copy.owner else {}
    if copy.zone is not None:
        found[layout.ZONE] = copy.zone.encode()
    for summary in copy.summaries:
        ids = tuple(_bind_id(each, epoch) for each in summary.message_ids)
        bound = replace(summary, id=_bind_id(summary.id, epoch), message_ids=ids)
        found[layout.SUMMARY + b"%d" % summary.first_seq] = bound.encode()
    if copy.summaries:
        found[layout.SUMMARIES_COUNT] = b"%d" % len(copy.summaries)
    if removed_count := copy.last_seq - copy.total_messages:
        found[layout.REMOVED] = b"%d" % removed_count
    if with_originals:
        found[layout.WITH_ORIGINALS] = b"1"
    if moved := [message.seq for message in earlier if message.pinned]:
        found[layout.pinned_field(moved)] = b"".join(elements[seq] for seq in moved)
    if pinned := [elements[message.seq] for message in copy.messages if message.pinned]:
        found[layout.PINS] = b"%d %d" % (len(pinned), sum(map(len, pinned)))
    return found


def _element(message: Message) -> bytes:
    return encode_message(message, lambda _: message.tokens)[0] + _stamp(message.stored_ms)


def _stamp(ms: int) -> bytes:
    """Encode the time at the end of an element, as `lua/include/stamp.lua` does."""
    return b"\xcf" + ms.to_bytes(8, "big")
