"""LangChain: a `BaseChatMessageHistory` over a session, for `RunnableWithMessageHistory` and for code of your own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from operator import itemgetter
from typing import Any

from redismem import blocking
from redismem.adapters.repairs import NO_ENDS, NO_RESULT, Ends, Orphans, find_orphans, say_repaired
from redismem.adapters.sessions import check_memory, decode_in_slices, join_id, make_policy, read_or_begin, renews
from redismem.context.context import Context
from redismem.errors import CorruptSession, InvalidMessage
from redismem.memory.memory import Memory
from redismem.messages.message import Message
from redismem.settings.extras import from_extra

with from_extra("langchain", __name__):
    from langchain_core.chat_history import BaseChatMessageHistory
    from langchain_core.messages import (
        AIMessage,
        BaseMessage,
        HumanMessage,
        ToolMessage,
        convert_to_messages,
        message_to_dict,
        messages_from_dict,
    )
    from langchain_core.runnables.config import run_in_executor

_Item = tuple[int, BaseMessage]
"""A message, behind the seq that orders it."""
_UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, NotImplementedError)


class ChatMessageHistory(BaseChatMessageHistory):
    """The history of one conversation. Make a new object for each run: it costs no I/O.

    The first read is a snapshot that later reads of the object return, until it adds messages or clears. The reason:
    `RunnableWithMessageHistory` reads twice in a run, and cuts its input by the length of the second read.

    >>> chain = RunnableWithMessageHistory(model, lambda session_id: ChatMessageHistory(session_id, memory))

    Args:
        session_id: The id of the conversation.
        memory: A blocking memory serves all methods, the async ones in a thread. An async memory serves the async
            methods.
        key_prefix: The session's id is `<key_prefix>:<session_id>`; "" uses the id of the conversation alone.
        ttl: The seconds without activity after which the session is removed. `None` means ten years.
        summarise: False keeps every message readable. True leaves older messages to the workers; their summary is
            then read as one `HumanMessage`. The first message of a session decides.
        owner: The person whom the session belongs to, as in `Memory.session`.
        zone: The time zone of the days in summaries, an IANA name such as "Europe/Zurich"; `None` means UTC.
        open_calls: True lets the history end with tool calls whose results your code adds later, such as after an
            approval. False is for a chain whose input is the user's next message: these calls are read as interrupted.

    Raises:
        InvalidSessionId: An id or the owner is empty, too long, or has characters that are not allowed.
        InvalidSettings: `ttl` is out of range, `zone` is unknown, or `memory` is of another type, such as a URL.
    """

    def __init__(
        self,
        session_id: str,
        memory: Memory | blocking.Memory,
        *,
        key_prefix: str = "langchain",
        ttl: float | None = None,
        summarise: bool = False,
        owner: str | None = None,
        zone: str | None = None,
        open_calls: bool = True,
    ) -> None:
        super().__init__()
        check_memory(memory, Memory, blocking.Memory)
        policy = make_policy(ttl, summarise, zone)
        self._session = memory.session(join_id(key_prefix, session_id), policy=policy, owner=owner)
        self._summarise, self._renew, self._open_calls = summarise, renews(policy), open_calls
        self._snapshot: list[BaseMessage] | None = None

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]
        """The messages, oldest first, as a new list. See `aget_messages`; an async memory raises TypeError."""
        if self._snapshot is None:
            session = self._blocking_session()
            try:
                context = session.read(renew=self._renew)
            except CorruptSession:  # as `read_or_begin` does
                session.set_aside()
                context = session.read()
            messages = session.tail(self._tail_count(context)) or [*context.pinned, *context.messages]
            self._snapshot = self._view(context, messages, self._decode(messages))
        return [*self._snapshot]

    async def aget_messages(self) -> list[BaseMessage]:
        """Return the messages, oldest first, as a new list. An unknown session has none.

        Raises:
            InvalidMessage: LangChain cannot represent a message of another program.
            StoreUnavailable: Redis does not answer, and this process has not seen the session.
        """
        if self._snapshot is None:
            session = self._session
            if isinstance(session, blocking.Session):
                return await super().aget_messages()
            context = await read_or_begin(session, partial(session.read, renew=self._renew))
            messages = await session.tail(self._tail_count(context)) or [*context.pinned, *context.messages]
            self._snapshot = self._view(context, messages, await decode_in_slices(messages, self._decode))
        return [*self._snapshot]

    def add_messages(self, messages: Sequence[BaseMessage], *, id: str | None = None) -> None:
        """Append messages, all or none. An id makes the append idempotent, as in `Session.append`.

        Raises:
            TypeError: The memory is an async one.
            InvalidMessage: A message has a value that would not come back equal, such as a datetime.
            TooLarge: There are too many messages, or one is too large.
            StoreUnavailable: Redis does not answer. With an id, the same call again is safe.
        """
        self._snapshot = None
        if messages:
            self._blocking_session().append(*map(self._encode, messages), id=id)

    async def aadd_messages(self, messages: Sequence[BaseMessage], *, id: str | None = None) -> None:
        """Append messages, all or none. See `add_messages`."""
        self._snapshot = None
        session = self._session
        if isinstance(session, blocking.Session):
            await run_in_executor(None, self.add_messages, messages, id=id)
        elif messages:
            await session.append(*map(self._encode, messages), id=id)

    def clear(self) -> None:
        """Remove the whole session: messages, summaries, originals and state.

        Raises:
            TypeError: The memory is an async one.
            StoreUnavailable: Redis does not answer.
        """
        self._snapshot = None
        self._blocking_session().clear()

    async def aclear(self) -> None:
        """Remove the whole session. See `clear`."""
        self._snapshot = None
        session = self._session
        if isinstance(session, blocking.Session):
            await super().aclear()
        else:
            await session.clear()

    def _blocking_session(self) -> blocking.Session:
        if not isinstance(self._session, blocking.Session):
            raise TypeError(
                "the memory is an async one: use ainvoke() and the methods that begin with a, "
                "or pass a redismem.blocking.Memory"
            )
        return self._session

    def _encode(self, message: BaseMessage) -> dict[str, Any]:
        encoded = message_to_dict(message)
        # The role pins it. Without summaries it would only count for the limit of pinned messages.
        return encoded | {"role": "system"} if self._summarise and message.type == "system" else encoded

    def _tail_count(self, context: Context) -> int:
        """Return the number of newest messages to read besides the context; usually 0, which costs nothing."""
        if context.summaries and not self._summarise:
            return context.last_seq  # another program began the session without the policy: read its originals
        return int(context.degraded and not context.window_count)  # refused if this process has never seen the session

    def _decode(self, messages: Sequence[Message]) -> list[BaseMessage]:
        decoded = []
        for message in messages:
            payload = message.to_openai()
            try:
                decoded += (messages_from_dict if "data" in payload else convert_to_messages)([payload])
            except _UNREADABLE:  # its text may quote the message
                raise InvalidMessage(f"LangChain cannot represent message {message.seq}", self._session.id) from None
        return decoded

    def _view(self, context: Context, messages: Sequence[Message], decoded: Sequence[BaseMessage]) -> list[BaseMessage]:
        """Return the decoded messages in order, each call with its result, and one for the summaries of others."""
        seqs = [message.seq for message in messages if not message.pinned]
        items = sorted(zip([message.seq for message in messages], decoded, strict=True), key=itemgetter(0))
        orphans = find_orphans((_ends_of(message) for _, message in items), may_end_open=self._open_calls)
        if orphans:
            say_repaired(self._session)
            items = _repair(items, orphans)
        hidden = [
            summary
            for summary in context.summaries
            if not any(summary.first_seq <= seq <= summary.last_seq for seq in seqs)
        ]
        if hidden:
            text = "\n\n".join(summary.to_openai(context.zone)["content"] for summary in hidden)
            items.append((hidden[0].first_seq, HumanMessage(text)))
        return [item for _, item in sorted(items, key=itemgetter(0))]


def _ends_of(message: BaseMessage) -> Ends:
    if isinstance(message, ToolMessage):
        return (message.tool_call_id,), ()
    if isinstance(message, AIMessage) and (calls := [*message.tool_calls, *message.invalid_tool_calls]):
        return (), [call["id"] for call in calls if call["id"] is not None]
    return NO_ENDS


def _repair(items: Sequence[_Item], orphans: Orphans) -> list[_Item]:
    """Return the messages with a result for each call. A late result moves to its call; one without is left out."""
    late = {id: items[at][1] for at, ids in reversed(orphans.results.items()) for id in ids}
    closing: dict[int, list[BaseMessage]] = {}
    for at, ids in orphans.calls.items():
        closing[orphans.ends[at]] = [
            late.get(id) or ToolMessage(NO_RESULT, tool_call_id=id, status="error") for id in sorted(ids)
        ]
    repaired: list[_Item] = []
    for at, item in enumerate(items):
        repaired += [(repaired[-1][0], result) for result in closing.get(at, ())]
        if at not in orphans.results or not isinstance(item[1], ToolMessage):
            repaired.append(item)
    return repaired + [(repaired[-1][0], result) for result in closing.get(len(items), ())]
