"""Options of an append, and the arguments of its command: encoding, parsing, resending. No I/O."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple, TypeVar

from redismem.context import Receipt
from redismem.errors import InvalidMessage, TooLarge
from redismem.events import Op
from redismem.messages.coercion import Shape, check_role_or_type
from redismem.messages.compression import compress_element
from redismem.messages.encoding import encode_message
from redismem.messages.message import Message, TokenCounter, is_opaque
from redismem.protocol import layout, replies
from redismem.protocol.call import Call, Command
from redismem.protocol.ids import append_token
from redismem.protocol.ring import NAME_BYTES
from redismem.protocol.sendings import renew
from redismem.protocol.session.expected import Expected, parse_expected
from redismem.protocol.session.state import StateChanges
from redismem.settings.names import over_limit
from redismem.settings.settings import Settings

T = TypeVar("T")

_REPLICAS_LIMIT = 64
# In counters: a window from the first message on, and the mark of a policy.
_WHOLE_WINDOW, _POLICY = b"v1 1 ", b"~"
_FRESH = "12"
"""The values of `fresh` of an append without an id."""
ANY = "@"
"""The argument `expect` that expects nothing, and has the epoch in the reply; `layout.NONE` leaves it out."""


class AppendOptions(StateChanges, total=False):
    """Options of an append: changes of the state, and the four below.

    `id` names the append. A repeated id writes nothing and returns the first receipt with `duplicate=True`; a session
    remembers its last 16 appends and state changes. `expect` is the context or receipt that the caller has seen, or a
    bare last seq; 0 means that the session must have no message. `pin` pins the messages or not; None means that the
    role decides. `confirm` is the number of replicas that must have the messages; None means that the setting decides.
    """

    id: str | None
    expect: Expected | None
    pin: bool | None
    confirm: int | None


NO_OPTIONS: AppendOptions = {}


def set_confirm(call: Call[T], options: AppendOptions, by_default: int) -> Call[T]:
    """Set the number of replicas that must confirm the call, and return the call.

    Raises:
        InvalidMessage: `confirm` is not an integer from 0 to 64.
    """
    confirm = options.get("confirm")
    if confirm is None:
        confirm = by_default
    elif type(confirm) is not int or not 0 <= confirm <= _REPLICAS_LIMIT:
        why = f"confirm is a number of replicas: an integer, 0 to {_REPLICAS_LIMIT}"
        raise InvalidMessage(why, call.session_id)
    call.confirm = confirm
    call.has_id = bool(options.get("id"))
    return call


def append_limits(settings: Settings, policy: str = "", zone: str | None = None) -> bytes:
    """Encode the limits for append.lua: seven numbers in one argument, because each argument costs time.

    `policy` is the policy of a new session, as the counters contain it without its mark, and `zone` its time zone.
    """
    numbers = (settings.recent_limit, settings.max_window_count, settings.max_params_count, settings.max_window_bytes)
    limits = (settings.kept_ms, settings.overdue_count, settings.overdue_tokens, *numbers)
    begun = [layout.encode_policy(policy).decode()] if policy else []
    return " ".join([*map(str, limits), *begun, *([] if zone is None else [f"%{zone}"])]).encode()


def encode_with_pin(
    message: Message | Shape, pin: bool | None, count_tokens: TokenCounter | None
) -> tuple[bytes, int, bool]:
    """Encode a message. Return the element without its stamp, the token count, and True if it is pinned.

    Raises:
        InvalidMessage: the message cannot be stored, or `pin` is not a bool.
    """
    if not isinstance(message, Message):
        message = Message.from_openai(message)
    if pin is not None:
        if type(pin) is not bool:
            raise InvalidMessage("pin is True, False or None")
        message = message.with_pin(pin)
    if is_opaque(message.beside):
        element, tokens = encode_message(message)
    else:
        element, tokens = encode_message(message, count_tokens)
        check_role_or_type(message.to_openai())
    return element, tokens, message.pinned


def check_size(settings: Settings, element: bytes, session_id: str, name: str) -> None:
    """Check the size of an element.

    Raises:
        TooLarge: the element exceeds `max_message_bytes`.
    """
    if len(element) > settings.max_message_bytes:
        over = over_limit("max_message_bytes", settings.max_message_bytes)
        raise TooLarge(f"{name} has {len(element)} bytes, {over}", session_id)


def batch_error(settings: Settings, limit: str, what: str, session_id: str) -> TooLarge:
    """Return the error of an append that exceeds a limit by itself."""
    return TooLarge(f"{what}, {over_limit(limit, getattr(settings, limit))}", session_id)


def compress_large(settings: Settings, element: bytes) -> bytes:
    """Compress the element if it exceeds `compress_above_bytes`; 0 disables compression."""
    return compress_element(element) if 0 < settings.compress_above_bytes < len(element) else element


def expect_argument(expect: Expected, session_id: str) -> str:
    """Return the argument `expect` of append.lua: the last seq, `@` and the epoch, `/` and the newest append.

    Raises:
        InvalidMessage: `expect` is neither a context of this session, a receipt nor a seq.
    """
    try:
        seq, epoch, newest = parse_expected(expect, session_id)
    except (TypeError, ValueError) as refused:
        raise InvalidMessage(str(refused), session_id) from None
    return f"{'' if seq is None else seq}{epoch and f'@{epoch}'}{f'/{newest.hex()}' if newest else ''}" or ANY


def create_token(id: str | None, session_id: str) -> bytes:
    """Create the token of an append.

    Raises:
        InvalidMessage: the id is not a string of 1 to 256 bytes.
    """
    try:
        return append_token(id)
    except InvalidMessage as refused:
        raise InvalidMessage(str(refused), session_id) from None


def pins_argument(settings: Settings, more_count: int, more_bytes: int) -> str:
    """Encode the argument `pins`: how many messages and bytes become pinned (negative: unpinned), and both limits."""
    return f"{more_count},{more_bytes},{settings.max_pinned_count},{settings.max_pinned_bytes}"


def request_place(command: Command) -> int:
    """Return the index of the argument `request` in the command of an append: with an owner, it has one more key."""
    return int(command[2]) + 5


def needs_few_keys(counters: bytes, window_count: int, threshold: int) -> bool:
    """True if the next append needs only four keys: if the session has no policy and no message left the window.

    Above the threshold, a worker may summarise the session before the next append, which then took two round trips.
    """
    return -1 < window_count <= threshold and counters.startswith(_WHOLE_WINDOW) and _POLICY not in counters


def shorten(command: Command) -> Command:
    """Return the command of an append with only its first four keys, which are enough for most appends."""
    return (*command[:2], 4, *command[3:7], *command[3 + int(command[2]) :])


def mark_resent(commands: tuple[Command, ...], *, is_sent: bool) -> tuple[Command, ...]:
    """Mark the append in `fresh`, because the server may have it already.

    If it was sent before, it also gets a new sending, which overtakes the earlier ones.
    """
    command, *reads = commands
    place = request_place(command)
    fresh, _, request = str(command[place]).partition(" ")
    token = renew(command[place + 1]) if is_sent else command[place + 1]
    again = f"{'2' if fresh in _FRESH else '3'} {request}"
    return ((*command[:place], again, token, *command[place + 2 :]), *reads)


def append_sizes(call: Call[Any]) -> tuple[int, int, int]:
    """Return the counts of messages, bytes and tokens of an append, read from its command."""
    command = call.commands[0]
    place = request_place(command)
    _, count, _, tokens, _ = str(command[place]).split(" ", 4)
    elements = command[place + 2 : place + 2 + int(count)]
    return int(count), sum(len(element) for element in elements if isinstance(element, bytes)), int(tokens)


class Append(NamedTuple):
    """The parsed command of an append, or of a change of the state alone."""

    token: bytes
    """The seven bytes that name the append."""
    elements: tuple[bytes, ...]
    """The messages, without their stamps."""
    tokens: int
    sets: tuple[bytes, ...]
    """field, value, field, value …"""
    drops: tuple[bytes, ...]
    has_expect: bool
    """True if the caller gave `expect`."""
    now_ms: int | None = None
    """The time of the stamp; None means the server's clock."""
    pins: tuple[int, ...] = ()
    """Pinned messages, their bytes, and the session's limits of both; empty if no message is pinned."""
    owner: bytes = b""
    """The owner of a session that the append creates, as the state contains it; empty means no owner."""
    policy: str = ""
    """The policy of a session that the append creates, as the counters contain it without its mark."""
    zone: bytes = b""
    """The time zone of a session that the append creates; empty means UTC."""

    @property
    def size_bytes(self) -> int:
        """The bytes that the append would store."""
        return sum(map(len, self.elements)) + sum(map(len, self.sets)) + sum(map(len, self.drops))


def parse_append(command: Command) -> Append:
    """Parse the command of an append; the arguments are in the order of append.lua."""
    place = request_place(command)
    _, count, sets_count, tokens, expect, now, pins = str(command[place]).split()
    token, *rest = (part for part in command[place + 1 :] if isinstance(part, bytes))
    first_set = int(count)
    first_drop = first_set + 2 * int(sets_count)
    limits, _, owner = _limits(command).partition(b" @")
    limits, _, zone = limits.partition(b" %")
    return Append(
        token[:NAME_BYTES],
        tuple(rest[:first_set]),
        int(tokens),
        tuple(rest[first_set:first_drop]),
        tuple(rest[first_drop:]),
        expect[0].isdigit(),
        None if now == layout.NONE else int(now),
        () if pins == layout.NONE else tuple(map(int, pins.split(","))),
        owner,
        limits.partition(b" ~")[2].decode(),
        zone,
    )


def _limits(command: Command) -> bytes:
    limits = command[request_place(command) - 1]
    assert isinstance(limits, bytes)
    return limits


def replay_call(call: Call[Any], *, may_be_there: bool) -> Call[Receipt]:
    """Build the replay of an append, without its reads and its `expect`. Its token makes it idempotent.

    `may_be_there` is True if the append was sent before.
    """
    command = call.commands[0]
    if may_be_there:
        (command,) = mark_resent((command,), is_sent=True)
    place = request_place(command)
    fresh, count, sets_count, tokens, _, now, pins = str(command[place]).split()
    request = f"{fresh} {count} {sets_count} {tokens} {ANY} {now} {pins}"
    assert call.session_id is not None
    return Call(
        call.session_id,
        ((*command[:place], request, *command[place + 1 :]),),
        # `any_kind`, because an accepted append can no longer be refused.
        partial(replies.receipt, call.session_id, int(count), any_kind=True),
        call.script,
        op=Op.REPLAY,
    )
