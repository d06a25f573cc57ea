"""A session for the OpenAI Agents SDK, in place of its `RedisSession`."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any, cast

from redismem import Conflict, Context, InvalidSessionId, Memory, Message, RedismemError, SessionNotFound, Turn
from redismem import Session as Conversation
from redismem.adapters.repairs import say_repaired
from redismem.adapters.runs import begin_run, run_of
from redismem.adapters.sessions import (
    Sessions,
    encode_item,
    in_order,
    make_policy,
    read_or_begin,
    refuse_unseen,
    replace_all,
    settle,
    summary_text,
)
from redismem.messages.message import Opaque
from redismem.settings.extras import from_extra

with from_extra("openai-agents", __name__):
    from agents import ItemHelpers, RunState, SessionSettings
    from agents.memory import session as sdk
    from agents.memory.session_settings import coerce_session_settings, resolve_session_limit

if TYPE_CHECKING:
    from agents import RunContextWrapper, TResponseInputItem

IsExpired = Callable[["TResponseInputItem"], bool]
KeyPrefix = str | Callable[["RunContextWrapper[Any]"], str]
_EVERY_ITEM = 1 << 31
_RESUMED: TResponseInputItem = {"role": "developer", "content": "The run goes on."}
"""The question of a turn that resumes a run. It is removed at once, because it would part a call from its result."""


class Session:
    """The history of one conversation: `Runner.run(agent, input, session=Session("user-42", url=...))`.

    Its items are the messages of the redismem session `<key_prefix>:<session_id>`. Each item comes back as it was
    added, until the session is cleared or forgotten, or was idle for `ttl` seconds.

    Methods that call Redis may raise StoreUnavailable or another RedismemError, and RuntimeError after `close()`. A
    write that is cancelled finishes before it raises CancelledError.
    """

    def __init__(
        self,
        session_id: str,
        *,
        memory: Memory | None = None,
        url: str | None = None,
        redis_client: Any = None,
        key_prefix: KeyPrefix = "agents:session",
        ttl: float | None = None,
        session_settings: SessionSettings | dict[str, Any] | None = None,
        summarise: bool = False,
        owner: str | None = None,
        zone: str | None = None,
    ) -> None:
        """Return a session, without I/O.

        Args:
            session_id: The id of the conversation.
            memory: The memory that has the session. The caller closes it.
            url: The URL of Redis, instead of a memory. All sessions of a process with the same URL share a memory.
                `None` means `REDISMEM_URL`.
            redis_client: A redis.asyncio client, instead of a memory or a URL. The caller closes it.
            key_prefix: The first part of the id of the redismem session. A function gets the context of the run, so
                that each tenant can have a prefix, such as `lambda wrapper: wrapper.context.tenant`.
            ttl: Seconds without activity after which Redis removes the session; `None` means ten years. An existing
                session keeps the value that it was begun with.
            session_settings: The default of `limit` in `get_items()`.
            summarise: True lets workers summarise older items: see `get_items()`.
            owner: The person whom the session belongs to, so that `memory.forget(owner=...)` removes it.
            zone: The time zone of the days in summaries, an IANA name such as "Europe/Zurich"; `None` means UTC.

        Raises:
            InvalidSessionId: The id or the owner is empty, too long, or has characters that are not allowed.
            InvalidSettings: The URL, the client, `ttl` or `zone` cannot be used, or more than one of `memory`, `url`
                and `redis_client` is given.
        """
        self.session_id = session_id
        self.session_settings: SessionSettings | None = coerce_session_settings(session_settings or SessionSettings())
        self._key_prefix = key_prefix
        self._summarise = summarise
        self._is_closed = False
        prefix = "" if callable(key_prefix) else key_prefix
        self._sessions = Sessions(url, memory, redis_client, prefix, make_policy(ttl, summarise, zone), owner)
        try:
            self._conversation = None if callable(key_prefix) else self._sessions.open(session_id)
        except BaseException:
            self.close()
            raise

    @classmethod
    def from_url(
        cls, session_id: str, *, url: str, redis_kwargs: dict[str, Any] | None = None, **options: Any
    ) -> Session:
        """Return a session of the Redis at this URL. The options are those of the class.

        Raises:
            TypeError: There are `redis_kwargs`. Put them into the URL, or pass a client as `redis_client`.
        """
        if redis_kwargs:
            raise TypeError("redis_kwargs: put the options into the URL, or pass a client as redis_client")
        return cls(session_id, url=url, **options)

    async def get_items(
        self, limit: int | None = None, *, wrapper: RunContextWrapper[Any] | None = None
    ) -> list[TResponseInputItem]:
        """Return the newest `limit` items, oldest first, exactly as they were added.

        Without a limit, here and in `session_settings`, return all items. With `summarise=True`, one user message with
        the summary then replaces the items that workers have summarised; a limit still returns the items themselves.
        """
        conversation = self._of(wrapper)
        items = await self._read_items(conversation, resolve_session_limit(limit, self.session_settings))
        _say_orphans(items, conversation)
        return items

    async def _read_items(self, conversation: Conversation, limit: int | None) -> list[TResponseInputItem]:
        if limit is None and self._summarise:
            context = await read_or_begin(conversation, partial(conversation.read, renew=self._sessions.renew))
            await refuse_unseen(conversation, context)
            # Of sealed items there are no summaries, but for those that an earlier release wrote.
            if not (context.summaries and any(type(each.visible) is Opaque for each in context.messages)):
                return _items_with_summary(context, conversation)
        count = _EVERY_ITEM if limit is None else max(0, limit)
        run, tail = run_of(conversation), partial(conversation.tail, renew=self._sessions.renew)
        if run is None or count == 0:
            return _items(await read_or_begin(conversation, partial(tail, count)))
        messages = await read_or_begin(conversation, partial(tail, count + len(run.unsaved)))
        return _items(run.hide(messages)[-count:])

    async def add_items(
        self, items: list[TResponseInputItem], *, wrapper: RunContextWrapper[Any] | None = None
    ) -> None:
        """Append items, all or nothing.

        Raises:
            InvalidMessage: An item is not a dict of JSON values.
            TooLarge: An item, the batch or the session exceeds a limit of the settings.
        """
        conversation = self._of(wrapper)
        run = run_of(conversation)
        if run is not None:
            items = items[run.count_stored(items) :]
        if items:
            append = conversation.append if run is None else run.turn.append
            await settle(append(*self._messages(items)))

    @contextlib.asynccontextmanager
    async def turn(
        self,
        input: str | list[TResponseInputItem] | RunState[Any],
        *,
        id: str,
        wrapper: RunContextWrapper[Any] | None = None,
        **options: Any,
    ) -> AsyncIterator[Turn]:
        """Let one run at a time write the session: `async with session.turn(input, id="…")` around `Runner.run`.

        Stores the input, which the run gets too. What the run adds in the block is refused once another turn has begun.

        Args:
            input: The input of the run, or the state of the run that it resumes.
            id: The name of the turn, such as the client's idempotency key: see `redismem.Session.turn`.
            wrapper: The context of the run, if `key_prefix` is a function.

        Takes the other options of `redismem.Session.turn`, and raises its errors.

        Raises:
            TurnBusy: Another run of this session goes on. Nothing was written.
            TurnKnown: A turn with this id runs or has ended. Nothing was written.
            TurnLost: Another process has ended this turn. Nothing more was stored.
        """
        conversation = self._of(wrapper)
        items = [] if isinstance(input, RunState) else ItemHelpers.input_to_new_input_list(input)
        question = self._messages(items or [_RESUMED])
        async with begin_run(conversation, question, items, id=id, **options) as turn:
            if not items:
                with contextlib.suppress(Conflict):  # a writer beside the turn: the item stays
                    await conversation.pop(exact=True, expect=turn.context)
            yield turn

    async def pop_item(self, *, wrapper: RunContextWrapper[Any] | None = None) -> TResponseInputItem | None:
        """Remove the newest item and return it, even if a summary covers it; `None` if there is none.

        Raises:
            NotInWindow: A summary covers it, and its original is missing or cannot be read.
        """
        return await settle(_pop(self._of(wrapper)))

    async def clear_session(self, *, wrapper: RunContextWrapper[Any] | None = None) -> None:
        """Remove the whole session, with everything that redismem has stored about it."""
        await settle(self._of(wrapper).clear())

    async def ping(self) -> bool:
        """Return True if Redis answers, False otherwise."""
        self._check_open()
        try:
            return await self._sessions.memory.ping()
        except RedismemError:
            return False

    def close(self) -> Awaitable[None]:
        """Close the session, unless it has a memory or client of the caller. Await the result, or leave it.

        The last session with a URL to be closed also closes the connection.
        """
        self._is_closed = self._is_closed or self._sessions.is_borrowed
        return self._sessions.close()

    async def _get_compaction_snapshot(self, limit: int, *, prune_prefix: IsExpired | None = None) -> Any:
        """Return the newest items for the SDK's compaction, with a function that replaces the last of them.

        Return `None` if this SDK has no snapshots, or if the session depends on the run, or is of a subclass.
        """
        make_snapshot = getattr(sdk, "_CompactionSnapshot", None)
        if make_snapshot is None or self._conversation is None or type(self) is not Session:
            return None
        self._check_open()
        conversation = self._conversation
        context, messages, is_complete = await _read_newest(conversation, limit)

        async def replace_suffix(start: int, output: list[TResponseInputItem]) -> bool:
            new = self._messages(output)
            return await settle(_replace(conversation, context, messages[start:], new, prune_prefix))

        return make_snapshot(_items(messages), is_complete, replace_suffix)

    async def _atomic_replace_items(self, items: list[TResponseInputItem]) -> bool:
        """Replace all items in one step, for the SDK's compaction. False lets the SDK clear and add instead."""
        if self._conversation is None or type(self) is not Session:
            return False
        self._check_open()
        await settle(replace_all(self._conversation, self._messages(items)))
        return True

    def _of(self, wrapper: RunContextWrapper[Any] | None) -> Conversation:
        """Return the redismem session for a run."""
        self._check_open()
        if self._conversation is not None:
            return self._conversation
        assert callable(self._key_prefix)
        if wrapper is None:
            raise TypeError("key_prefix is a function: pass wrapper=, as the Runner does")
        prefix = self._key_prefix(wrapper)
        if not isinstance(prefix, str) or not prefix.strip() or ":" in prefix:
            raise InvalidSessionId("key_prefix must return a name without a colon, which is not empty", self.session_id)
        return self._sessions.open(self.session_id, prefix)

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeError("the session is closed")

    def _messages(self, items: Sequence[TResponseInputItem]) -> list[Message | dict[str, Any]]:
        payloads = cast("Sequence[dict[str, Any]]", items)
        return [encode_item(each, summarise=self._summarise) for each in payloads]


def _items(messages: list[Message]) -> list[TResponseInputItem]:
    return [cast("TResponseInputItem", message.to_openai()) for message in messages]


def _say_orphans(items: Sequence[TResponseInputItem], conversation: Conversation) -> None:
    """Log that the SDK leaves out calls, because the user went on before their results came."""
    waiting: set[str] = set()
    for item in cast("Sequence[dict[str, Any]]", items):
        if "call_id" in item:
            (waiting.discard if str(item.get("type")).endswith("_output") else waiting.add)(str(item["call_id"]))
        elif waiting and item.get("role") == "user":
            say_repaired(conversation)
            return


def _items_with_summary(context: Context, conversation: Conversation) -> list[TResponseInputItem]:
    """Return the items of a context; those that are summarised as one user message that quotes the summaries."""
    text = summary_text(context)
    summary: Any = [{"role": "user", "content": text}] if text else []
    messages, run = in_order(context), run_of(conversation)
    return [*summary, *_items(messages if run is None else run.hide(messages))]


async def _pop(conversation: Conversation) -> TResponseInputItem | None:
    with contextlib.suppress(SessionNotFound):
        for message in await conversation.pop(exact=True):
            return cast("TResponseInputItem", message.to_openai())
    return None


async def _read_newest(conversation: Conversation, limit: int) -> tuple[Context, list[Message], bool]:
    """Return the newest messages, a context of the same moment, and True if these are all messages."""
    while True:
        context = await read_or_begin(conversation, partial(conversation.read, 0))
        messages = await read_or_begin(conversation, partial(conversation.tail, limit + 1))
        if not messages or (messages[-1].epoch == context.epoch and messages[-1].seq <= context.last_seq):
            return context, messages[-limit:] if limit > 0 else [], len(messages) <= limit


async def _replace(
    conversation: Conversation,
    seen: Context,
    old: list[Message],
    new: Sequence[Message | dict[str, Any]],
    is_old: IsExpired | None,
) -> bool:
    """Replace the newest messages if they are as they were read, and return True. Drop expired ones, too."""
    try:
        if not old or await conversation.tail(len(old)) != old:
            return False
        receipt = await conversation.rewrite(old[0].seq, new, expect=seen)
    except (Conflict, SessionNotFound):
        return False
    if is_old is not None:
        with contextlib.suppress(Conflict, SessionNotFound):  # the next compaction drops them
            messages = await conversation.tail(_EVERY_ITEM)
            expired = takewhile(is_old, _items(messages))
            await conversation.prune(len(messages) - sum(1 for _ in expired), expect=receipt)
    return True
