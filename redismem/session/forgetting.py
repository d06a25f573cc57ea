"""Forget single messages of a session, also behind summaries."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Sequence, Set
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from redismem.concurrency.offload import LARGE_BYTES, run_apart
from redismem.context.info import Forgotten
from redismem.context.results import Summary
from redismem.errors import TooLarge
from redismem.messages.message import Message
from redismem.models.extractive.summarizer import Extractive, compose
from redismem.originals.blocks import block_number, unpacked_bytes
from redismem.protocol import layout
from redismem.protocol.call import Call
from redismem.protocol.session import forget as forget_plans
from redismem.protocol.session import pages
from redismem.protocol.session.calls import SessionCalls
from redismem.protocol.session.edits import View, edit
from redismem.protocol.session.forget import Kept
from redismem.settings.names import over_limit
from redismem.store.dictionaries import load_dictionaries
from redismem.store.store import Store

T = TypeVar("T")
Run = Callable[[Call[Any]], Coroutine[Any, Any, Any]]

_READ_COUNT = 64
"""The blocks that one call reads."""
_BLOCKS_LIMIT = 256
"""The newest blocks of a summary from which it is written anew. It bounds the time, about a millisecond per message."""
_STEP_COUNT = 256
"""The messages that are added to a summary in one step."""


def check_seqs(seqs: Collection[Any], limit: int, session_id: str) -> set[int]:
    """Return the seqs as a set.

    Raises:
        ValueError: A seq is not an integer of 1 or more.
        TooLarge: There are more than `limit`.
    """
    if any(type(seq) is not int or seq < 1 for seq in seqs):
        raise ValueError("a seq is an integer, 1 or more")
    if len(seqs) > limit:
        raise TooLarge(f"{len(seqs)} seqs to forget at once, {over_limit('max_batch_count', limit)}", session_id)
    return set(seqs)


class Forgetting:
    """The removal of messages from one state of a session."""

    def __init__(self, store: Store, calls: SessionCalls, run: Run, view: View, seqs: Set[int]) -> None:
        self._store = store
        self._calls = calls
        self._run = run
        self._view = view
        self._seqs = seqs
        self._blocks: dict[int, Kept | None] = {}

    async def forget(self) -> Forgotten | None:
        """Remove the messages, and return what was removed; `None` if the session has changed since it was read.

        Raises:
            NotInWindow: A block of originals that may contain one of the messages cannot be read.
        """
        view = self._view
        selected = forget_plans.select(view, self._blocks, self._seqs)
        while numbers := forget_plans.blocks_to_read(view, selected | self._seqs, self._blocks):
            await self._read(numbers)
            selected = forget_plans.select(view, self._blocks, self._seqs)
        covering = forget_plans.covering(view, self._blocks, self._seqs, selected)
        if not selected and not covering:
            return Forgotten(())
        summaries = {old: await self._rewrite(old, selected, seqs) for old, seqs in covering.items()}
        listed = forget_plans.listed_in(view, covering)
        plan = await self._run_apart(partial(forget_plans.forget, view, selected, self._blocks, summaries, listed))
        if not await self._run(edit(self._calls, view, plan, bool)):
            return None
        seqs = selected.union(*covering.values())
        rewritten = [(old.first_seq, old.last_seq) for old, new in summaries.items() if new is not None]
        dropped = [(old.first_seq, old.last_seq) for old, new in summaries.items() if new is None]
        return Forgotten(tuple(sorted(seqs)), tuple(rewritten), tuple(dropped))

    async def _read(self, numbers: Sequence[int]) -> None:
        for at in range(0, len(numbers), _READ_COUNT):
            part = numbers[at : at + _READ_COUNT]
            blocks = await self._run(pages.blocks(self._calls.keys, part))
            known = await load_dictionaries(self._store, [block.stored for block in blocks])
            self._blocks |= dict.fromkeys(part)
            is_large = sum(unpacked_bytes(block.stored) for block in blocks) > LARGE_BYTES
            work = partial(forget_plans.decode_all, self._view, blocks, known)
            self._blocks |= await run_apart(self._store.transport, work, is_much=is_large)

    async def _run_apart(self, work: Callable[[], T]) -> T:
        size = sum(unpacked_bytes(kept.block.stored) for kept in self._blocks.values() if kept)
        return await run_apart(self._store.transport, work, is_much=size > LARGE_BYTES)

    async def _rewrite(self, old: Summary, selected: Set[int], seqs: Set[int]) -> Summary | None:
        """Write a summary anew from the originals that are left; `None` means that there are none."""
        if layout.WITH_ORIGINALS not in self._view.fields:
            return None
        first, last = block_number(old.first_seq), block_number(old.last_seq)
        span = range(max(first, last + 1 - _BLOCKS_LIMIT), last + 1)
        await self._read([number for number in span if number not in self._blocks])
        read = partial(forget_plans.left_of, old, self._blocks, selected, self._view.context.epoch)
        messages = await self._run_apart(read)
        if not messages:
            return None
        settings = self._store.settings
        limit_bytes = min(4 * max(old.tokens, settings.summary_tokens), settings.max_summary_bytes)
        text = await self._compose(messages, limit_bytes)
        return replace(
            old,
            text=text,
            model=Extractive.name,
            tokens=len(text.encode()) // 4 + 4,
            created_ms=await self._store.server_time_ms(),
            message_ids=forget_plans.ids_without(old, seqs, self._view.context.epoch),
        )

    async def _compose(self, messages: Sequence[Message], limit_bytes: int) -> str:
        text = ""
        for at in range(0, len(messages), _STEP_COUNT):
            work = compose(text, messages[at : at + _STEP_COUNT], limit_bytes)
            while True:
                try:
                    next(work)
                except StopIteration as done:
                    text = done.value
                    break
                await self._store.transport.sleep(0)
        return text
