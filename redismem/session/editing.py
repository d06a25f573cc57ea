"""Prune, archive, pop, undo, rewrite, replace and unpin: the edits of one conversation."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from redismem.concurrency.offload import LARGE_BYTES, run_apart
from redismem.context.context import Context
from redismem.context.results import Receipt
from redismem.errors import InvalidSettings, NotInWindow, SessionNotFound
from redismem.events import Op
from redismem.messages.coercion import Shape
from redismem.messages.message import Message
from redismem.originals.blocks import unpacked_bytes
from redismem.originals.dictionaries import Dictionaries
from redismem.protocol import layout
from redismem.protocol.call import Call
from redismem.protocol.session import cuts, ending, leaving, pages, replacing
from redismem.protocol.session.calls import SessionCalls
from redismem.protocol.session.edits import Edit, View, edit, window
from redismem.protocol.session.expected import Expected
from redismem.recall.cache import RecallCache
from redismem.recall.originals import Originals
from redismem.session import edits
from redismem.session.paging import check_count
from redismem.session.reading import Reader
from redismem.session.reused_ids import check_same
from redismem.store.dictionaries import load_dictionaries
from redismem.store.store import Store

T = TypeVar("T")

_READ_COUNT = 64
"""The blocks that one call reads to count their messages."""


class Editor:
    """The part of a session that edits messages. Each edit is atomic, and is refused if another writer was faster."""

    __slots__ = ("_calls", "_reader", "_recall_cache", "_store")

    def __init__(self, store: Store, session_calls: SessionCalls, reader: Reader, recall_cache: RecallCache) -> None:
        self._store = store
        self._calls = session_calls
        self._reader = reader
        self._recall_cache = recall_cache

    async def prune(self, max_messages: int, *, expect: Expected | None = None) -> int:
        """Drop the oldest messages for good, keep the newest `max_messages`, and return the number of dropped messages.

        Keeps more messages if a tool call would otherwise lose its result. Summaries, pinned messages and state stay.

        Args:
            max_messages: The number of messages to keep, without pinned ones.
            expect: The context, receipt or last seq that the caller has seen. `None` expects nothing.

        Raises:
            Conflict: The session is not as `expect` says.
            SessionNotFound: The session does not exist.
            ValueError: `max_messages` is not an integer of 0 or more.
            InvalidMessage: `expect` is neither a context of this session, a receipt nor a seq.
        """
        check_count("max_messages", max_messages)
        while True:
            view = await self.view("prune", expect)
            dropped = leaving.select_pruned(view.context, max_messages)
            if not dropped:
                return 0
            count = await self._change(view, leaving.prune(view, dropped), partial(leaving.decode_pruned, dropped))
            if count:
                return count

    async def archive(self, count: int, *, expect: Expected | None = None) -> list[Message]:
        """Move the oldest `count` messages of the window into the originals, and return them, oldest first.

        They leave the context without a summary. `tail()`, `recall()` and `messages(include_originals=True)` still find
        them. Archives all messages if there are fewer, and exactly these, even if a tool call loses its result. Pinned
        messages do not count and stay in the context. If other writers archive meanwhile, each message is returned to
        one of them.

        Args:
            count: The number of messages to archive, without pinned ones.
            expect: The context, receipt or last seq that the caller has seen. `None` expects nothing.

        Raises:
            InvalidSettings: Neither this memory nor the namespace's record keeps originals, so the messages would be
                lost.
            Conflict: The session is not as `expect` says.
            SessionNotFound: The session does not exist.
            ValueError: `count` is not an integer of 0 or more.
            InvalidMessage: `expect` is neither a context of this session, a receipt nor a seq.
        """
        if type(count) is not int or count < 0:
            raise ValueError("count must be an integer, 0 or more")
        originals = Originals(self._store, self._calls.keys)
        while True:
            view = await self.view("archive", expect)
            if not self._store.agreement.keeps_originals:
                raise InvalidSettings("cannot archive: originals are not kept here (keep_originals)")
            messages = view.context.messages[:count]
            if not messages:
                return []
            with_originals = layout.WITH_ORIGINALS in view.fields
            fields = await originals.encode_leaving(view.context, view.elements, messages, with_originals)
            if await self._change(view, leaving.archive(view, messages, fields), bool):
                return await self._reader.with_bodies(messages)

    async def pop(self, count: int = 1, *, exact: bool = False, expect: Expected | None = None) -> list[Message]:
        """Remove the newest `count` messages for good and return them, oldest first. Removes all if there are fewer.

        Removes more messages if a tool call would otherwise lose its result. Pinned messages stay. Seqs are never
        reused, and the pop itself takes a seq, so `last_seq` grows.

        Args:
            count: The number of messages to remove, at least 1.
            exact: True removes exactly the messages that `tail(count)` returns, pinned or not, even if a tool call
                loses its result. If a summary covers one of them, the summary goes, and the messages that it covers
                before them come back from the originals. If another writer is faster, its messages are the newest.
            expect: The context, receipt or last seq that the caller has seen. `None` expects nothing.

        Raises:
            Conflict: The session is not as `expect` says; or another writer changed it meanwhile, unless `exact`.
            NotInWindow: Summaries cover some of these messages; if `exact`, their originals are missing or unreadable.
            TooLarge: More messages than `max_batch_count` would be removed.
            SessionNotFound: The session does not exist.
            ValueError: `count` is not an integer of 1 or more.
            InvalidMessage: `expect` is neither a context of this session, a receipt nor a seq.
        """
        if type(count) is not int or count < 1:
            raise ValueError("count must be an integer, 1 or more")
        if exact:
            return await self._pop_exactly(count, expect)
        return await self._pop("pop", expect, lambda context, limit: edits.select_newest(context, count, limit))

    async def undo(self, *, expect: Expected | None = None) -> list[Message]:
        """Remove the last turn for good and return it: the user's last message and all messages after it.

        Returns an empty list if the user never wrote a message. Pinned messages stay. Seqs are never reused, and the
        undo itself takes a seq, so `last_seq` grows.

        Args:
            expect: The context, receipt or last seq that the caller has seen. `None` expects nothing.

        Raises:
            Conflict: The session is not as `expect` says, or another writer changed it meanwhile.
            NotInWindow: Summaries cover all messages of the user.
            TooLarge: More messages than `max_batch_count` would be removed.
            SessionNotFound: The session does not exist.
            InvalidMessage: `expect` is neither a context of this session, a receipt nor a seq.
        """
        return await self._pop("undo", expect, edits.select_last_turn)

    async def _pop(
        self, op: str, expect: Expected | None, select: Callable[[Context, int], list[Message]]
    ) -> list[Message]:
        view = await self.view(op, expect)
        while True:
            popped = select(view.context, self._store.settings.max_batch_count)
            whole = await self._reader.with_bodies(popped)
            if not popped or await self._change(view, ending.pop(view, popped), bool):
                return whole
            before, view = view, await self.view(op, expect)
            if not edits.has_only_moved(before.context, view.context):
                raise edits.make_conflict(before.context)

    async def _pop_exactly(self, count: int, expect: Expected | None) -> list[Message]:
        while True:
            view = await self.view("pop", expect)
            popped, cut = edits.select_exactly(view.context, count, self._store.settings.max_batch_count), None
            if popped is None:
                popped = await self._reader.tail(count)
                if not edits.is_of_view(popped, view.context):
                    continue
                try:
                    cut = await self._plan_pop(view, popped, count)
                except NotInWindow:
                    if await self._has_changed("pop", view):
                        continue  # another writer has removed what was to be read
                    raise
            whole = await self._reader.with_bodies(popped)
            if not popped or await self._change(view, ending.pop_exactly(view, popped, cut), bool):
                return whole

    async def _has_changed(self, op: str, view: View) -> bool:
        return edits.version_of((await self.view(op, None)).context) != edits.version_of(view.context)

    async def _plan_pop(self, view: View, popped: Sequence[Message], count: int) -> cuts.Cut | None:
        first_read_seq = popped[0].seq if len(popped) == count else 1
        blocks, dictionaries = await self._read_blocks(cuts.blocks_behind(view, first_read_seq))
        cuts.check_readable(view, first_read_seq, blocks, dictionaries)
        is_behind = popped and popped[0].seq < view.context.first_seq
        return await self._plan_cut(view, popped[0].seq) if is_behind else None

    async def rewrite(
        self,
        from_seq: int,
        messages: Sequence[Message | Shape],
        *,
        id: str | None = None,
        expect: Expected | None = None,
    ) -> Receipt:
        """Replace everything from a seq on by these messages, all or nothing, and return their receipt.

        Also removes pinned messages, and what other writers append meanwhile, unless `expect` forbids it. If a summary
        covers the seq, the summary goes, and the messages that it covers before the seq come back from the originals.
        Seqs are never reused: the new messages get the next ones. Without messages, it only removes, and takes one seq
        itself, which is then `first_seq` and `last_seq` of the receipt.

        Args:
            from_seq: The seq of the first message to replace. One after the last seq replaces nothing.
            messages: See `append()`. Possibly none.
            id: An id that makes the rewrite idempotent, as in `append()`.
            expect: The context, receipt or last seq that the caller has seen. `None` expects nothing. Only a context
                also expects that no message was replaced, unpinned or forgotten since.

        Raises:
            Conflict: The session is not as `expect` says.
            NotInWindow: The seq was never given; or a summary covers it, and originals are missing or unreadable.
            InvalidMessage: A message or the id is invalid.
            TooLarge: A message, the batch, the pinned messages or the window exceeds its limit.
            IdReused: The id was used before, for other messages.
            SessionNotFound: The session does not exist.
            ValueError: `from_seq` is not an integer of 1 or more.
            TypeError: `messages` is a single message.
        """
        if type(from_seq) is not int or from_seq < 1:
            raise ValueError("from_seq must be an integer, 1 or more")
        if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence):
            raise TypeError(f"messages must be a list, not {type(messages).__name__}")
        new = ending.encode(self._calls, messages, id)
        receipt = None
        while receipt is None:
            # Not checked yet: a rewrite that was made before has changed the session itself.
            view = await self.view("rewrite", expect, is_checked=False)
            receipt = ending.find_receipt(view, new)
            if receipt is None:
                edits.check_expected(view.context, expect)
                try:
                    cut = await self._plan_cut(view, from_seq) if from_seq < view.context.first_seq else None
                except NotInWindow:
                    if await self._has_changed("rewrite", view):
                        continue  # another writer has removed what was to be read
                    raise
                decode = partial(ending.decode_receipt, self._calls.keys.session_id, new)
                receipt = await self._change(view, ending.rewrite(view, from_seq, new, cut), decode)
        if receipt.duplicate:
            check_same(messages, receipt, view.context, new.seqs_count)
        return receipt

    async def _plan_cut(self, view: View, from_seq: int) -> cuts.Cut:
        numbers = cuts.blocks_to_read(view, from_seq, self._store.settings.max_window_count)
        blocks, dictionaries = await self._read_blocks(numbers)
        found = await self._find_messages(view, from_seq)
        return await self._run_apart(partial(cuts.plan_cut, view, from_seq, blocks, dictionaries, found), blocks)

    async def _find_messages(self, view: View, from_seq: int) -> dict[int, bool]:
        """Return which seqs from one up to the window have a message, and which have none, as the originals tell."""
        numbers, found = cuts.blocks_to_count(view, from_seq), dict[int, bool]()
        for at in range(0, len(numbers), _READ_COUNT):
            blocks, dictionaries = await self._read_blocks(numbers[at : at + _READ_COUNT])
            found |= await self._run_apart(partial(cuts.find_messages, blocks, dictionaries), blocks)
        first_kept = min(found, default=view.context.first_seq)
        if numbers and first_kept > from_seq and await self._has_blocks_before(numbers[0]):
            first_kept = from_seq
        # Behind the first original, no block is kept of seqs without a message.
        return dict.fromkeys(range(first_kept, view.context.first_seq), False) | found if numbers else found

    async def _has_blocks_before(self, number: int) -> bool:
        for stop in range(number, 0, -_READ_COUNT):
            if await self._run(pages.blocks(self._calls.keys, range(max(0, stop - _READ_COUNT), stop))):
                return True
        return False

    async def _run_apart(self, work: Callable[[], T], blocks: Sequence[pages.Block]) -> T:
        is_large = sum(unpacked_bytes(block.stored) for block in blocks) > LARGE_BYTES
        return await run_apart(self._store.transport, work, is_much=is_large)

    async def _read_blocks(self, numbers: Sequence[int]) -> tuple[list[pages.Block], Dictionaries]:
        blocks = await self._run(pages.blocks(self._calls.keys, numbers)) if numbers else []
        return blocks, await load_dictionaries(self._store, [block.stored for block in blocks])

    async def replace(
        self, which: int | Message, message: Message | dict[str, Any], *, expect: Expected | None = None
    ) -> Message:
        """Replace a message of the window or a pinned message, and return the new message as stored.

        The new message takes over the seq, the time and the pin of the old one. Both must make the same tool calls and
        contain the same tool results.

        Args:
            which: The seq of the old message; or the old message as read, which must not have changed since.
            message: The new message.
            expect: The context, receipt or last seq that the caller has seen. `None` expects nothing.

        Raises:
            Conflict: The session is not as `expect` says, or another writer changed the old message.
            NotInWindow: A summary covers the old message, or it does not exist.
            InvalidMessage: The new message cannot be stored, or its tool calls or results differ.
            TooLarge: The new message exceeds its limit.
            SessionNotFound: The session does not exist.
            TypeError: `which` is neither a seq nor a message.
        """
        view = await self.view("replace", expect)
        while True:
            old = which = edits.find_message(view.context, which)
            edits.check_replacement(view.context, old, message)
            change = replacing.replacement(self._calls, old, message)
            replaced = await self._replace(view, old, change, if_last_seq=expect is not None)
            if replaced is not None:
                return replaced
            view = await self.view("replace", expect)  # an unchanged message has only moved: try again

    async def unpin(self, which: int | Message) -> Message:
        """Unpin a message and return it. A message that is not pinned stays unchanged.

        A message in the window stays there. A message that has left the window also leaves the context, since no
        summary covers it; if the session keeps originals, it stays among them.

        Args:
            which: The seq of the message; or the message as read, which must not have changed since.

        Raises:
            Conflict: Another writer changed the message.
            NotInWindow: The message is neither in the window nor pinned.
            SessionNotFound: The session does not exist.
            TypeError: `which` is neither a seq nor a message.
        """
        view = await self.view("unpin")
        while True:
            old = which = edits.find_message(view.context, which)
            unpinned = await self._replace(view, old, replacing.unpin(old)) if old.pinned else old
            if unpinned is not None:
                return unpinned
            view = await self.view("unpin")  # an unchanged message has only moved: try again

    async def _replace(
        self, view: View, old: Message, changed: replacing.Replacement, *, if_last_seq: bool = False
    ) -> Message | None:
        block = await Originals(self._store, self._calls.keys).prepare_change(view, old, changed)
        plan = replacing.replace(view, old, changed, block, if_last_seq=if_last_seq)
        return changed.message if await self._change(view, plan, bool) else None

    async def _change(self, view: View, plan: Edit, decode: Callable[[Any], T]) -> T:
        """Make an edit. `decode` gets the reply, 0 if refused."""
        return await self.run_edit(self._run(edit(self._calls, view, plan, decode)), removes=plan.op is not Op.ARCHIVE)

    def _run(self, call: Call[T]) -> Coroutine[Any, Any, T]:
        return self._store.run(call, quarantine=True)

    async def run_edit(self, work: Coroutine[Any, Any, T], *, removes: bool = True) -> T:
        """Do the work, which changes messages, and drop what this process has cached of the session and its owner.

        `removes` is False if no message is removed or replaced: nothing is dropped.
        """
        try:
            return await work
        finally:
            if removes:
                self._recall_cache.forget(self._calls.keys.session_id)

    async def view(self, op: str, expect: Expected | None = None, *, is_checked: bool = True) -> View:
        """Return the window and state of the session. Raises SessionNotFound, Conflict."""
        view = await self._run(window(self._calls))
        if view is None:
            edits.check_life(self._calls.keys.session_id, expect)
            raise SessionNotFound(f"cannot {op}: there is no such session", self._calls.keys.session_id)
        if is_checked:
            edits.check_expected(view.context, expect)
        return view
