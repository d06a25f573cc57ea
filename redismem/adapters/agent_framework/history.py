"""`HistoryProvider` and `SessionStore` keep conversations and sessions in Redis."""

from __future__ import annotations

import json
import warnings
from collections.abc import AsyncIterator, Callable, Hashable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, ClassVar

import agent_framework as framework
from agent_framework import AgentSession, SessionContext, SupportsAgentRun
from agent_framework import Message as ChatMessage

from redismem import Conflict, InvalidMessage, InvalidState, Memory, Message, Session, Turn
from redismem.adapters.agent_framework.repair import repair
from redismem.adapters.repairs import say_repaired
from redismem.adapters.runs import begin_run, run_of
from redismem.adapters.sessions import (
    Closes,
    Sessions,
    decode_in_slices,
    in_order,
    make_policy,
    read_or_begin,
    refuse_unseen,
    summary_text,
)

_PARAM = "agent_session"
"""The param with a snapshot of an AgentSession."""


class HistoryProvider(Closes, framework.HistoryProvider):
    """A history provider, in place of `InMemoryHistoryProvider`, `FileHistoryProvider` or `RedisHistoryProvider`.

    >>> agent = Agent(client, context_providers=[HistoryProvider("redis://127.0.0.1:6379/0")])

    Each session of the framework is one session of redismem. Any number of processes may share it.
    """

    _opened: Sessions
    DEFAULT_SOURCE_ID: ClassVar[str] = "redismem"
    """The name of this provider in an agent, unless `source_id` gives another."""

    def __init__(  # noqa: PLR0913 (all but the URL are keywords)
        self,
        url: str | None = None,
        *,
        memory: Memory | None = None,
        redis_client: Any = None,
        key_prefix: str = "agent_framework",
        ttl: float | None = None,
        summarise: bool = False,
        source_id: str = DEFAULT_SOURCE_ID,
        load_messages: bool = True,
        store_inputs: bool = True,
        store_context_messages: bool = False,
        store_context_from: set[str] | None = None,
        store_outputs: bool = True,
        skip_excluded: bool = False,
        owner: str | Callable[[str], str | None] | None = None,
        zone: str | None = None,
    ) -> None:
        """Make a provider. It connects on first use.

        Args:
            url: The URL of Redis. `None` means `REDISMEM_URL`.
            memory: A memory to use instead of a URL. The caller closes it.
            redis_client: A redis.asyncio client to use instead of a URL. The caller closes it.
            key_prefix: The session `42` of the framework is the session `<key_prefix>:42` of redismem.
            ttl: The seconds without activity after which Redis removes a session. `None` keeps it for ten years.
            summarise: False keeps every message readable. True lets workers summarise the older messages of sessions
                that this provider begins: `get_messages` then returns the summary as its first message.
            source_id: The name of this provider in the agent. Providers with different names have different histories.
            load_messages: See the framework's `HistoryProvider`, also for the next four.
            store_inputs: As there.
            store_context_messages: As there.
            store_context_from: As there.
            store_outputs: As there.
            skip_excluded: True leaves out messages that a compaction has marked as excluded.
            owner: The person whom the sessions that this provider begins belong to, so that `memory.forget(owner=...)`
                removes them. If a provider serves several persons: a function that returns the owner of a session id of
                the framework, or `None`.
            zone: The time zone of the days in summaries, an IANA name such as "Europe/Zurich"; `None` means UTC.

        Raises:
            InvalidSessionId: `key_prefix` cannot begin a session id, or the owner is invalid.
            InvalidSettings: URL, memory, client, ttl or zone is invalid, or more than one of the first three is given.
        """
        super().__init__(
            source_id,
            load_messages=load_messages,
            store_inputs=store_inputs,
            store_context_messages=store_context_messages,
            store_context_from=store_context_from,
            store_outputs=store_outputs,
        )
        self.skip_excluded = skip_excluded
        self._summarise = summarise
        source = None if source_id == HistoryProvider.DEFAULT_SOURCE_ID else source_id
        self._opened = Sessions(url, memory, redis_client, key_prefix, make_policy(ttl, summarise, zone), owner, source)

    async def before_run(
        self, *, agent: SupportsAgentRun, session: AgentSession, context: SessionContext, state: dict[str, Any]
    ) -> None:
        """Load the history for a run, after a check that its input can be stored: no tool runs for nothing.

        Calls that neither the history nor the input answers get a result that says so, for this run alone.

        Raises:
            InvalidMessage, TooLarge: `save_messages` would refuse the input.

        Also raises the errors of `get_messages`.
        """
        if self.store_inputs and context.input_messages:
            self._opened.open(context.session_id or "").check(*map(self._encode, context.input_messages))
        await super().before_run(agent=agent, session=session, context=context, state=state)
        loaded = context.context_messages.get(self.source_id)
        if loaded and context.input_messages and (repaired := repair(loaded, context.input_messages)):
            say_repaired(self._opened.open(context.session_id or ""))
            context.context_messages[self.source_id] = repaired

    async def get_messages(
        self, session_id: str | None, *, state: dict[str, Any] | None = None, **kwargs: Any
    ) -> list[ChatMessage]:
        """Return the messages of a session, oldest first. An unknown session has none.

        Raises:
            InvalidMessage: The session has a message that is not from the framework.
            InvalidSessionId: There is no session id, or it is too long or has characters that are not allowed.
            StoreUnavailable: Redis does not answer.
        """
        del state, kwargs
        session = self._opened.open(session_id or "")
        context = await read_or_begin(session, partial(session.read, renew=self._opened.renew))
        run = run_of(session)
        stored = in_order(context) if run is None else run.hide(in_order(context))
        messages = await _decode(session, stored)
        if context.summaries:
            messages.insert(0, ChatMessage("user", [summary_text(context)]))
        if not messages:
            await refuse_unseen(session, context)
        if self.skip_excluded:
            return [message for message in messages if not message.additional_properties.get("_excluded", False)]
        return messages

    async def save_messages(
        self,
        session_id: str | None,
        messages: Sequence[ChatMessage],
        *,
        state: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Add messages, all or none.

        Messages at the beginning that repeat the end of the history are left out, as the framework's own providers do.
        If another process adds messages meanwhile, these are compared, too.

        Raises:
            InvalidMessage: A message has a value that JSON cannot hold, or that is nested too deep.
            TooLarge: A message, the number of messages or the session exceeds its limit.

        Also raises the errors of `get_messages`.
        """
        del state, kwargs
        session = self._opened.open(session_id or "")
        run = run_of(session)
        if run is not None:
            messages = messages[run.count_stored(_identify_slice(messages)) :]
        while messages:
            # The rule compares no more than that many of the newest. A summarised session has few.
            count = None if self._summarise else len(messages) + 1
            context = await read_or_begin(session, partial(session.read, count))
            history = in_order(context)
            if any(message.shortened for message in history):  # a message is compared as it was saved
                history = await session.messages(len(history), include_originals=True)
            new = await _select_new(await _decode(session, history), messages)
            if not new:
                return
            if run is not None:
                await run.turn.append(*map(self._encode, new))
                return
            try:
                await session.append(*map(self._encode, new), expect=context)
                return
            except Conflict:  # another process was faster
                pass

    @asynccontextmanager
    async def turn(
        self, session_id: str, input: str | ChatMessage | Sequence[str | ChatMessage], *, id: str, **options: Any
    ) -> AsyncIterator[Turn]:
        """Let one run at a time write a session: `async with history.turn("42", input, id="…")` around `agent.run`.

        Stores the input, which the run gets too. What the run saves in the block is refused once another turn has
        begun.

        Args:
            session_id: The id of the run's session.
            input: The messages of the run.
            id: The name of the turn, such as the client's idempotency key: see `redismem.Session.turn`.

        Takes the other options of `redismem.Session.turn`, and raises its errors.

        Raises:
            TurnBusy: Another run of this session goes on. Nothing was written.
            TurnKnown: A turn with this id runs or has ended. Nothing was written.
            TurnLost: Another process has ended this turn. Nothing more was stored.
        """
        listed = [input] if isinstance(input, str | ChatMessage) else input
        messages = [ChatMessage("user", [each]) if isinstance(each, str) else each for each in listed]
        question = [self._encode(each) for each in messages]
        async with begin_run(
            self._opened.open(session_id), question, _identify_slice(messages), id=id, **options
        ) as turn:
            yield turn

    def _encode(self, message: ChatMessage) -> Message:
        try:
            payload = message.to_dict()
        except RecursionError:
            raise InvalidMessage("a message has a value that is nested too deep") from None
        # A worker must read what it summarises. What is kept whole needs no reader.
        return Message.from_openai(payload) if self._summarise else Message.opaque(payload)


async def _select_new(history: Sequence[ChatMessage], messages: Sequence[ChatMessage]) -> Sequence[ChatMessage]:
    """Return the messages that do not repeat the end of the history."""
    # A user may repeat a question. Only an id tells that it is the same message.
    one_is_new = bool(history) and history[-1].role == "user" and history[-1].message_id is None
    before, saved = [await decode_in_slices(each, _identify_slice) for each in (history, messages)]
    repeated = _count_repeated(before, saved, one_is_new=one_is_new)
    return messages[repeated:]


def _identify_slice(messages: Sequence[ChatMessage]) -> list[Hashable]:
    return [_identify(message) for message in messages]


def _identify(message: ChatMessage) -> Hashable:
    """Return the value by which the framework compares messages: the id, or else role and contents."""
    if message.message_id is not None:
        return str(message.message_id)
    try:
        contents = json.dumps([content.to_dict() for content in message.contents], sort_keys=True, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):  # as the framework does; it is refused when it is encoded
        contents = str(message.contents)
    return str(message.role), contents


def _count_repeated(history: Sequence[Hashable], saved: Sequence[Hashable], *, one_is_new: bool) -> int:
    """Return the number of messages at the beginning of a save that the history has, by the framework's rule.

    These end with the first place where the save has the whole history. If there is none, they are the longest
    beginning of the save that ends the history. `one_is_new` keeps a single message that equals the newest one.
    """
    if not history:
        return 0
    # As strings, with a character per distinct message, the lists are searched in linear time.
    numbers: dict[Hashable, int] = {}
    before, after = (
        "".join(chr(numbers.setdefault(item, len(numbers))) for item in items) for items in (history, saved)
    )
    at = after.find(before)
    if at >= 0 and not (one_is_new and at == 0 and len(before) == 1):
        return at + len(before)
    overlap = next((count for count in range(len(after), 0, -1) if before.endswith(after[:count])), 0)
    return 0 if one_is_new and overlap == 1 else overlap


async def _decode(session: Session, messages: Sequence[Message]) -> list[ChatMessage]:
    return await decode_in_slices(messages, partial(_decode_slice, session))


def _decode_slice(session: Session, messages: Sequence[Message]) -> list[ChatMessage]:
    decoded = []
    for message in messages:
        try:
            decoded.append(ChatMessage.from_dict(message.to_openai()))
        except (TypeError, ValueError, KeyError):
            raise InvalidMessage(f"message {message.seq} is not a Message of Agent Framework", session.id) from None
    return decoded


with warnings.catch_warnings():
    # Once a process, the framework warns of a subclass of its experimental store: here of an import for the provider.
    warnings.filterwarnings("ignore", r"\[SESSION_STORE\]")

    class _ExperimentalStore(framework.SessionStore):
        pass


class SessionStore(Closes, _ExperimentalStore):
    """A session store, in place of the framework's `SessionStore` and `FileSessionStore`, which are experimental.

    The last writer wins. A snapshot is one value of at most `max_value_bytes`, so keep the messages in a
    `HistoryProvider` and not in the session's state.

    Every method may raise ValueError if the id is empty, InvalidSessionId if it cannot be a session id, and
    StoreUnavailable.
    """

    _opened: Sessions

    def __init__(
        self,
        url: str | None = None,
        *,
        memory: Memory | None = None,
        redis_client: Any = None,
        key_prefix: str = "agent_session",
        ttl: float | None = None,
        owner: str | Callable[[str], str | None] | None = None,
    ) -> None:
        """Make a store. It connects on first use. For arguments and errors see `HistoryProvider`."""
        super().__init__()
        self._opened = Sessions(url, memory, redis_client, key_prefix, make_policy(ttl, summarise=False), owner)

    async def get(self, session_id: str) -> AgentSession | None:
        """Return the stored session; `None` if there is none.

        Raises:
            InvalidState: The stored value is no session of the framework.
        """
        session = self._open(session_id)
        state = await read_or_begin(session, partial(session.state, renew=self._opened.renew))
        snapshot = state.params.get(_PARAM)
        if snapshot is None:
            await refuse_unseen(session, state)
            return None
        try:
            return AgentSession.from_dict(snapshot)
        except (TypeError, ValueError, KeyError, AttributeError):
            raise InvalidState(f"the param {_PARAM} is not a session of Agent Framework", session.id) from None

    async def set(self, session_id: str, session: AgentSession) -> None:
        """Store a session in place of the present one.

        Raises:
            TypeError: The session is of a subclass, which would come back as an `AgentSession`.
            InvalidState: The state has a value that JSON cannot hold, or that is nested too deep.
            TooLarge: The session exceeds `max_value_bytes`.
        """
        if type(session) is not AgentSession:
            raise TypeError(f"a SessionStore stores an AgentSession, not a {type(session).__name__}")
        stored = self._open(session_id)
        try:
            snapshot = session.to_dict()
        except RecursionError:
            raise InvalidState("the session has a value that is nested too deep", stored.id) from None
        if isinstance(snapshot["service_session_id"], Mapping):
            snapshot["service_session_id"] = dict(snapshot["service_session_id"])
        await stored.update(merge={_PARAM: snapshot})

    async def delete(self, session_id: str) -> None:
        """Remove a stored session, if there is one."""
        await self._open(session_id).clear()

    def _open(self, session_id: str) -> Session:
        self.validate_session_id(session_id)
        return self._opened.open(session_id)
