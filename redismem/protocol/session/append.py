"""Options of an append, the encoding of its messages, and its replay. No I/O."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TypeVar

from redismem.context.results import Receipt
from redismem.errors import InvalidMessage, TooLarge
from redismem.events import Op
from redismem.messages.coercion import Shape, check_role_or_type
from redismem.messages.encoding import encode_message
from redismem.messages.message import Message, TokenCounter, is_opaque
from redismem.protocol import replies, scripts
from redismem.protocol.appends import ANY, Append
from redismem.protocol.call import Call
from redismem.protocol.ids import Sender
from redismem.protocol.session.expected import Expected, parse_expected
from redismem.protocol.session.state import StateChanges
from redismem.settings.names import over_limit
from redismem.settings.settings import Settings

T = TypeVar("T")

_REPLICAS_LIMIT = 64


class TurnOptions(StateChanges, total=False):
    """Options of the question of a turn: changes of the state, and the three below.

    `expect` is the context or receipt that the caller has seen, or a bare last seq; 0 means that the session must have
    no message. `pin` pins the messages or not; None means that the role decides. `confirm` is the number of replicas
    that must have the messages; None means that the setting decides.
    """

    expect: Expected | None
    pin: bool | None
    confirm: int | None


class AppendOptions(TurnOptions, total=False):
    """Options of an append: those of the question of a turn, and `id`.

    `id` names the append. A repeated id writes nothing and returns the first receipt with `duplicate=True`; a session
    remembers its last 16 appends and state changes.
    """

    id: str | None


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


def create_token(sender: Sender, id: str | None, session_id: str) -> bytes:
    """Create the token of an append.

    Raises:
        InvalidMessage: the id is not a string of 1 to 256 bytes.
    """
    try:
        return sender.token(id)
    except InvalidMessage as refused:
        raise InvalidMessage(str(refused), session_id) from None


def replay_call(session_id: str, append: Append, *, may_be_there: bool) -> Call[Receipt]:
    """Build the replay of an append, without its reads and its `expect`. Its token makes it idempotent.

    `may_be_there` is True if the append was sent before.
    """
    append = replace(append.again(is_sent=True) if may_be_there else append, expect=ANY)
    # `any_kind`, because an accepted append can no longer be refused.
    decode = partial(replies.receipt, session_id, len(append.elements), any_kind=True)
    return Call(session_id, (append.command(),), decode, scripts.load("append"), op=Op.REPLAY, append=append)
