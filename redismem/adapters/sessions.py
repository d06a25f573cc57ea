"""The parts that all adapters share: open a memory, name a session, choose its policy, settle or replace."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self, TypeVar
from urllib.parse import quote, unquote

from redismem import (
    Conflict,
    Context,
    CorruptSession,
    InvalidSessionId,
    InvalidSettings,
    Memory,
    Message,
    Policy,
    Session,
    SessionNotFound,
    State,
)
from redismem.memory.erasure import Wanted
from redismem.record import Record

S = TypeVar("S")
T = TypeVar("T")

_LONGEST_S = 10 * 365 * 86_400
"""The longest idle timeout of a policy."""
_HANDLES_COUNT = 4_096
_PINNED_ROLES = ("system", "developer")
_SLICE_COUNT = 128
"""The messages that a framework's own code decodes before other tasks run: about 5 ms."""


def make_policy(ttl_s: float | None, summarise: bool, zone: str | None = None) -> Policy:
    """Return the policy of a framework's session: whole unless it is summarised, and removed by its own timeout alone.

    `ttl_s` is the time without activity after which Redis removes the session; `None` means ten years, the longest.
    `zone` is the IANA name of the time zone of its days; `None` means UTC.
    """
    timeout_s = _LONGEST_S if ttl_s is None else ttl_s
    return Policy(keep_whole=not summarise, idle_timeout_s=timeout_s, exempt=True, zone=zone)


def renews(policy: Policy) -> bool:
    """True if reads of a session with this policy renew its expiry. Ten years need no renewal."""
    return policy.idle_timeout_s != _LONGEST_S


def escape_id(text: str) -> str:
    """Return a framework's id without colons: `%3A` stands for a colon, and `%25` for a percent sign."""
    return text.replace("%", "%25").replace(":", "%3A")


def check_prefix(key_prefix: str) -> None:
    """Refuse a prefix that is not a string. Raises InvalidSessionId."""
    if not isinstance(key_prefix, str):
        raise InvalidSessionId("key_prefix is not a string: give the tenant's own, or an empty string for none")


def join_id(prefix: str, session_id: str, source: str | None = None) -> str:
    """Return the id of the redismem session behind a framework's session: `<prefix>:<session_id>`.

    Colons of the framework's id are escaped. So the last colon ends the prefix, and no other pair has this id. A source
    is the part of the session that belongs to one of several stores: `<prefix>:<session_id>%2F<source>`.

    Raises:
        InvalidSessionId: The framework's id is empty or not a string, so all such sessions would be one. Or the prefix
            is not a string: without one, all tenants would share their sessions.
    """
    check_prefix(prefix)
    if not isinstance(session_id, str) or not session_id.strip():
        raise InvalidSessionId("the session id is empty or not a string: give each conversation an id of its own")
    escaped = escape_id(session_id) + ("" if source is None else f"%2F{escape_id(source)}")
    return f"{prefix}:{escaped}" if prefix else escaped


def quote_part(part: str) -> str:
    """Return a part of an id whose parts are joined by slashes. `unquote_part` reverses it.

    Raises:
        InvalidSessionId: The part is not a string.
    """
    if not isinstance(part, str):
        raise InvalidSessionId(f"names of apps, projects, users and sessions are strings, not {type(part).__name__}")
    return quote(part, "", errors="surrogatepass")


def unquote_part(part: str) -> str:
    """Return the part that `quote_part` has quoted."""
    return unquote(part, errors="surrogatepass")


def split_id(prefix: str, joined: str) -> str | None:
    """Return the framework's id in an id from `join_id`; `None` if it has another prefix, or a source."""
    start = f"{prefix}:" if prefix else ""
    escaped = joined[len(start) :]
    session_id = escaped.replace("%3A", ":").replace("%25", "%")
    is_its_own = joined.startswith(start) and session_id != "" and escape_id(session_id) == escaped
    return session_id if is_its_own else None


def check_memory(memory: object, *kinds: type) -> None:
    """Check the memory of the caller before anything is written with it.

    Raises:
        InvalidSettings: The memory is of another type. A blocking one would write, and fail only then.
    """
    if not isinstance(memory, kinds):
        wanted = " or a ".join(_name(kind) for kind in kinds)
        raise InvalidSettings(f"memory must be a {wanted}, not a {_name(type(memory))}")


def _name(kind: type) -> str:
    return f"{kind.__module__.partition('.memory')[0]}.{kind.__name__}".removeprefix("builtins.")


Owner = str | Callable[[T], str | None] | None
"""The person whom all that a store begins belongs to, or a function of the framework's name for it."""


def check_owner(owner: Owner[Any]) -> None:
    """Check an owner at the start of the program; a function is checked whenever it names one.

    Raises:
        InvalidSessionId: It is neither a function nor `None`, and `memory.forget(owner=...)` would refuse it.
    """
    if owner is not None and not callable(owner):
        Wanted(owner=owner)


def resolve_owner(owner: Owner[T], name: T) -> str | None:
    """Return the person whom something with this name belongs to, `None` if it belongs to nobody."""
    return owner(name) if callable(owner) else owner


@dataclass(slots=True, eq=False)
class _Shared:
    memory: Memory
    users_count: int = 0


class Done:
    """An awaitable that is done, and that nobody has to await."""

    def __await__(self) -> Generator[None, None, None]:
        yield from ()


_lock = threading.Lock()
_by_url: dict[str | None, _Shared] = {}
_closing: set[asyncio.Task[None]] = set()


def borrow_memory(url: str | None) -> Memory:
    """Return the memory that all adapters of this process share for a URL. Give it back with `return_memory`.

    `None` means `REDISMEM_URL`. All other settings come from the environment.

    Raises:
        InvalidSettings: The URL cannot be used.
    """
    with _lock:
        shared = _by_url.get(url)
        if shared is None:
            shared = _by_url[url] = _Shared(Memory.connect(url))
        shared.users_count += 1
        return shared.memory


def return_memory(url: str | None) -> Awaitable[None]:
    """Give back a memory from `borrow_memory`. The last one to do so closes it. Await the result, or leave it."""
    with _lock:
        shared = _by_url[url]
        shared.users_count -= 1
        if shared.users_count:
            return Done()
        del _by_url[url]
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(shared.memory.aclose())
        return Done()
    closing = loop.create_task(shared.memory.aclose())
    _closing.add(closing)  # the loop itself would not keep it alive
    closing.add_done_callback(_closing.discard)
    return closing


@lru_cache(maxsize=8)
def memory_over(client: Any) -> Memory:
    """Return the memory over a caller's redis-py client. All sessions over one client share it.

    Raises:
        InvalidSettings: The client cannot be used.
    """
    return Memory.connect(client=client)


class Closes:
    """The end of a store: `async with` and `aclose`."""

    _opened: Opened

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connection, unless another store uses it. A memory or a client of the caller stays open."""
        await self._opened.aclose()


class Opened:
    """The memory that one store of a framework uses: the caller's, or one over its client, or a shared one of a URL."""

    def __init__(self, url: str | None, memory: Memory | None, client: Any) -> None:
        """Open the memory: the caller's `memory`, or one over its `client`, or the shared one of `url`.

        Raises:
            InvalidSettings: More than one of them is given, or one cannot be used.
        """
        if sum(given is not None for given in (url, memory, client)) > 1:
            raise InvalidSettings("give one of url, memory and redis_client: only one of them would be used")
        if memory is not None:
            check_memory(memory, Memory)
        self.is_borrowed = memory is None and client is None
        """True until a memory that other stores with this URL share is given back."""
        self._url = url
        self.memory = memory or (borrow_memory(url) if client is None else memory_over(client))

    def close(self) -> Awaitable[None]:
        """Give back a borrowed memory. A memory or a client of the caller stays open. Await the result, or leave it."""
        if not self.is_borrowed:
            return Done()
        self.is_borrowed = False
        return return_memory(self._url)

    async def aclose(self) -> None:
        """Give back a borrowed memory, as `close` does."""
        await self.close()


class Sessions(Opened):
    """The sessions that one store of a framework uses: their memory, and a handle for each of the framework's ids."""

    def __init__(
        self,
        url: str | None,
        memory: Memory | None,
        client: Any,
        prefix: str,
        policy: Policy,
        owner: Owner[str] = None,
        source: str | None = None,
    ) -> None:
        """Open the memory, and check prefix, policy and owner. For the source see `join_id`.

        Raises:
            InvalidSessionId: The prefix cannot begin a session id, or the owner is invalid.
            InvalidSettings: The memory is named more than once, or cannot be used, or the policy is invalid.
        """
        super().__init__(url, memory, client)
        # A handle with a policy is not cached by the memory, and a framework names its session in each call.
        self._begin = lru_cache(maxsize=_HANDLES_COUNT)(self._begin_uncached)
        self._prefix, self._policy, self._owner, self._source = prefix, policy, owner, source
        self.renew = renews(policy)
        """True if a read of a session counts as use."""
        try:  # refuses each of them at the start of the program, not in its first turn
            check_owner(owner)
            self._begin(prefix, "x", None)
        except BaseException:
            self.close()
            raise

    def open(self, session_id: str, prefix: str | None = None) -> Session:
        """Return the handle of the session behind this id of the framework, with the store's prefix or another one.

        Raises InvalidSessionId.
        """
        prefix = self._prefix if prefix is None else prefix
        return self._begin(prefix, session_id, resolve_owner(self._owner, session_id))

    def _begin_uncached(self, prefix: str, session_id: str, owner: str | None) -> Session:
        return self.memory.session(join_id(prefix, session_id, self._source), policy=self._policy, owner=owner)


def is_readable(item: dict[str, Any]) -> bool:
    """True if redismem reads an item as a message: it has a role or a type."""
    if type(item) is not dict:
        return False
    role, type_ = item.get("role"), item.get("type")
    return (type(role) is str and role != "") or (type(type_) is str and type_ != "")


def encode_item(item: dict[str, Any], *, summarise: bool) -> Message | dict[str, Any]:
    """Return an item of the OpenAI Agents SDK as its adapter stores it.

    It is opaque if redismem cannot read it; or would pin it, unless workers may summarise the session.
    """
    pinned = () if summarise else _PINNED_ROLES
    return item if is_readable(item) and item.get("role") not in pinned else Message.opaque(item)


def in_order(context: Context) -> list[Message]:
    """Return pinned and other messages of a context in the order in which they were added."""
    messages = context.messages
    return sorted((*context.pinned, *messages), key=lambda each: each.seq) if context.pinned else messages


def summary_text(context: Context) -> str:
    """Return the summaries of a context as one text for a message of the user; "" without summaries."""
    return "\n\n".join(summary.to_openai(context.zone)["content"] for summary in context.summaries)


async def decode_in_slices(messages: Sequence[S], decode: Callable[[Sequence[S]], list[T]]) -> list[T]:
    """Return messages as those of a framework, a slice at a time: a long history must not block the event loop."""
    decoded: list[T] = []
    for at in range(0, len(messages), _SLICE_COUNT):
        if at:
            await asyncio.sleep(0)
        decoded += decode(messages[at : at + _SLICE_COUNT])
    return decoded


async def refuse_unseen(session: Session, answer: Context | State) -> None:
    """Check an answer without content: it may be degraded, and from a process that has never seen the session.

    Raises:
        StoreUnavailable: Nobody can tell whether the session is empty.
    """
    if answer.degraded:
        await session.tail(1)


async def read_or_begin(kept: Session | Record, read: Callable[[], Awaitable[T]]) -> T:
    """Read what an agent goes on from. If it is damaged, put it into quarantine, and read that there is nothing.

    A framework reads before it writes. If the read failed, no write would ever begin the session anew.
    """
    try:
        return await read()
    except CorruptSession:
        await kept.set_aside()
    return await read()


async def settle(mutation: Awaitable[T]) -> T:
    """Await a mutation to its end even if the caller is cancelled, and raise CancelledError only then.

    A caller that was cancelled can then read whether the mutation was made, before it decides what to do.
    """
    task = asyncio.ensure_future(mutation)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError as cancelled:
        while not task.done():
            with contextlib.suppress(asyncio.CancelledError):  # the caller may be cancelled again
                await asyncio.wait([task])
        task.cancelled() or task.exception()  # retrieved, so that asyncio does not log it
        raise cancelled


async def replace_all(session: Session, messages: Sequence[Message | dict[str, Any]]) -> None:
    """Replace all messages of a session in one step, whatever others append meanwhile. Without messages, clear it."""
    while messages:
        try:
            await session.rewrite(1, messages)
            return
        except SessionNotFound:
            with contextlib.suppress(Conflict):  # another writer has begun it meanwhile
                await session.append(*messages, expect=0)
                return
    await session.clear()
