"""How the command of an append reads: what a caller may ask of it, and what stands in its arguments. No I/O."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple, TypeVar

from redismem.context import Receipt
from redismem.errors import InvalidMessage, TooLarge
from redismem.events import Op
from redismem.messages.coercion import Shape, check_role_or_type
from redismem.messages.compression import compress_element
from redismem.messages.encoding import encode_message
from redismem.messages.message import Message, TokenCounter
from redismem.protocol import layout, replies
from redismem.protocol.call import Call, Command
from redismem.protocol.ids import append_token
from redismem.protocol.session import append_ids
from redismem.protocol.session.state import StateChanges
from redismem.settings.settings import Settings

T = TypeVar("T")

_REPLICAS_LIMIT = 64
REQUEST_PLACE = 15
"""The place of the argument `request` in the command."""


class AppendOptions(StateChanges, total=False):
    """What an append takes beside its messages: changes of the state, and these.

    `id` names the append: given again, nothing is written and the first receipt comes back with `duplicate=True`, for
    the session's last 16 appends and changes of state. `expect`: the last seq the caller has seen (0: no session).
    `pin`: whether these messages are pinned; None: by their role. `confirm`: how many replicas must have them; None: as
    the settings say.
    """

    id: str | None
    expect: int | None
    pin: bool | None
    confirm: int | None


NO_OPTIONS: AppendOptions = {}


def to_confirm(call: Call[T], options: AppendOptions, by_default: int) -> Call[T]:
    """The call, with as many replicas to confirm it as the caller says.

    Raises InvalidMessage for a number that is none.
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


def append_limits(settings: Settings) -> bytes:
    """What every append of a memory tells its script: six numbers in one argument, as each argument costs time."""
    numbers = (settings.recent_limit, settings.max_window_count, settings.max_params_count)
    return " ".join(map(str, (settings.kept_ms, settings.overdue_count, settings.overdue_tokens, *numbers))).encode()


def encode_as(message: Message | Shape, pin: bool | None, count_tokens: TokenCounter | None) -> tuple[bytes, int, bool]:
    """An element without its stamp, its tokens, and whether it is pinned. Raises InvalidMessage."""
    if not isinstance(message, Message):
        message = Message.from_openai(message)
    if pin is not None:
        if type(pin) is not bool:
            raise InvalidMessage("pin is True, False or None")
        message = message.with_pin(pin)
    element, tokens = encode_message(message, count_tokens)
    check_role_or_type(message.to_openai())
    return element, tokens, message.pinned


def check_size(settings: Settings, element: bytes, session_id: str, name: str) -> None:
    """Raises TooLarge."""
    if len(element) > settings.max_message_bytes:
        raise TooLarge(f"{name} has {len(element)} bytes, over {settings.max_message_bytes}", session_id)


def stored_as(settings: Settings, element: bytes) -> bytes:
    """The element as it is stored: a large one compressed, if the settings say so."""
    return compress_element(element) if 0 < settings.compress_above_bytes < len(element) else element


def token_of(id: str | None, session_id: str) -> bytes:
    """What an append is remembered by. Raises InvalidMessage for an id that cannot be one."""
    try:
        return append_token(id)
    except InvalidMessage as refused:
        raise InvalidMessage(str(refused), session_id) from None


def more_pins(settings: Settings, more_count: int, more_bytes: int) -> str:
    """What a script is told of messages that are pinned from now on; less than zero: no longer."""
    return f"{more_count},{more_bytes},{settings.max_pinned_count},{settings.max_pinned_bytes}"


def resent_append(commands: tuple[Command, ...]) -> tuple[Command, ...]:
    """An append, for a server that may have it already: `fresh` says so."""
    command, *reads = commands
    fresh, _, request = str(command[REQUEST_PLACE]).partition(" ")
    again = f"{'2' if fresh == '1' else '3'} {request}"
    return ((*command[:REQUEST_PLACE], again, *command[REQUEST_PLACE + 1 :]), *reads)


def appended_sizes(call: Call[Any]) -> tuple[int, int, int]:
    """Messages, their bytes and their tokens in an append: read out of its command by those who want to know."""
    command = call.commands[0]
    _, count, _, tokens, _ = str(command[REQUEST_PLACE]).split(" ", 4)
    elements = command[REQUEST_PLACE + 2 : REQUEST_PLACE + 2 + int(count)]
    return int(count), sum(len(element) for element in elements if isinstance(element, bytes)), int(tokens)


class Append(NamedTuple):
    """What stands in the command of an append, or of a change of the state alone."""

    token: bytes
    """The part by which the session remembers it, if it has messages."""
    elements: tuple[bytes, ...]
    """The messages, without their stamps."""
    tokens: int
    sets: tuple[bytes, ...]
    """field, value, field, value …"""
    drops: tuple[bytes, ...]
    expects: bool
    """Whether the caller has named the last seq."""
    now_ms: int | None = None
    """The time that it is stamped with; None: the server's."""
    pins: tuple[int, ...] = ()
    """How many of the messages are pinned, their bytes, and the limits of both for a session; nothing for none."""

    @property
    def size_bytes(self) -> int:
        """The size of all that it would store."""
        return sum(map(len, self.elements)) + sum(map(len, self.sets)) + sum(map(len, self.drops))


def taken_apart(command: Command) -> Append:
    """What this command says; what append.lua takes, in its order."""
    _, count, sets_count, tokens, expect, now, pins = str(command[REQUEST_PLACE]).split()
    token, *rest = (part for part in command[REQUEST_PLACE + 1 :] if isinstance(part, bytes))
    first_set = int(count)
    first_drop = first_set + 2 * int(sets_count)
    return Append(
        token[: append_ids.NAME_BYTES],
        tuple(rest[:first_set]),
        int(tokens),
        tuple(rest[first_set:first_drop]),
        tuple(rest[first_drop:]),
        expect != layout.NONE,
        None if now == layout.NONE else int(now),
        () if pins == layout.NONE else tuple(map(int, pins.split(","))),
    )


def replay_call(call: Call[Any], *, may_be_there: bool) -> Call[Receipt]:
    """The append of this call alone, to be made now: nothing is read with it. It is made once for its token.

    `may_be_there`: it was sent before now.
    """
    command = call.commands[0]
    if may_be_there:
        (command,) = resent_append((command,))
    fresh, count, sets_count, tokens, _, now, pins = str(command[REQUEST_PLACE]).split()
    request = f"{fresh} {count} {sets_count} {tokens} {layout.NONE} {now} {pins}"
    assert call.session_id is not None
    return Call(
        call.session_id,
        ((*command[:REQUEST_PLACE], request, *command[REQUEST_PLACE + 1 :]),),
        # What was accepted cannot be refused any more.
        partial(replies.receipt, call.session_id, int(count), any_kind=True),
        call.script,
        op=Op.REPLAY,
    )
