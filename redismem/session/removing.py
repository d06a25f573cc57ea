"""Clear a conversation, or forget single messages of it."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from redismem.context.info import Forgotten
from redismem.errors import SessionNotFound
from redismem.protocol.call import Call
from redismem.protocol.session.calls import SessionCalls
from redismem.protocol.session.clear import clear
from redismem.session.editing import Editor
from redismem.store.store import Store

T = TypeVar("T")


class Remover:
    """The part of a session that removes all of it, or messages wherever they are."""

    __slots__ = ("_calls", "_editor", "_store")

    def __init__(self, store: Store, session_calls: SessionCalls, editor: Editor) -> None:
        self._store = store
        self._calls = session_calls
        self._editor = editor

    async def clear(self, missing_ok: bool = True) -> bool:
        """Remove the whole session: messages, summaries, originals and state. Return False if it does not exist.

        Raises:
            SessionNotFound: The session does not exist and `missing_ok` is False.
        """
        cleared = await self._editor.run_edit(self._run(clear(self._calls.keys, self._store.settings)))
        if not cleared and not missing_ok:
            raise SessionNotFound("cannot clear: there is no such session", self._calls.keys.session_id)
        return cleared

    async def forget(self, *seqs: int) -> Forgotten:
        """Remove messages for good, wherever the session has them, and return what was removed.

        Removes them from the window, from pinned messages and from the originals, with their vectors and their words in
        the search index; and the messages of the same tool calls, so that no call loses its result. A summary that
        covers one of them is written anew, without a model, from the originals that are left; without originals it is
        removed, because it may tell of the message. A summary that a worker is writing meanwhile is refused.

        The seqs of the other messages stay. A seq without a message is no error. State, and items that a project
        extracted, are not searched.

        Args:
            seqs: The seqs of the messages, at most `max_batch_count`.

        Raises:
            NotInWindow: A block of originals that may contain one of the messages cannot be read.
            SessionNotFound: The session does not exist.
            TooLarge: There are too many seqs.
            ValueError: A seq is not an integer of 1 or more.
        """
        from redismem.session.forgetting import Forgetting, check_seqs  # loads the extractive summariser

        wanted = check_seqs(seqs, self._store.settings.max_batch_count, self._calls.keys.session_id)
        forgotten = None
        while forgotten is None:
            view = await self._editor.view("forget")
            work = Forgetting(self._store, self._calls, self._run, view, wanted).forget()
            forgotten = await self._editor.run_edit(work)
        return forgotten

    def _run(self, call: Call[T]) -> Coroutine[Any, Any, T]:
        return self._store.run(call, quarantine=True)
