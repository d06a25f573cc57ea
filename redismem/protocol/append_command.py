"""How the command of an append reads: what a caller may ask of it, and what stands in its arguments. No I/O."""

from __future__ import annotations

from typing import Any

from redismem.errors import InvalidMessage
from redismem.messages import Message, TokenCounter, encode_message
from redismem.protocol.call import Call, Command
from redismem.protocol.state_changes import StateChanges
from redismem.settings import Settings
from redismem.shapes import Shape

REQUEST_PLACE = 13
"""The place of the argument `request` in the command."""


class AppendOptions(StateChanges, total=False):
    """What an append takes beside its messages: changes of the state, and these.

    `id` names the append: given again, nothing is written and the first receipt comes back with `duplicate=True`, for
    the session's last 16 appends and changes of state. `expect`: the last seq the caller has seen (0: no session).
    `pin`: whether these messages are pinned; None: by their role.
    """

    id: str | None
    expect: int | None
    pin: bool | None


NO_OPTIONS: AppendOptions = {}


def append_limits(settings: Settings) -> bytes:
    """What every append of a memory tells its script: six numbers in one argument, as each argument costs time."""
    numbers = (settings.recent_limit, settings.max_window_count, settings.max_params_count)
    return " ".join(
        map(str, (settings.idle_timeout_ms, settings.overdue_count, settings.overdue_tokens, *numbers))
    ).encode()


def encode_as(message: Message | Shape, pin: bool | None, count_tokens: TokenCounter | None) -> tuple[bytes, int, bool]:
    """An element without its stamp, its tokens, and whether it is pinned. Raises InvalidMessage."""
    if not isinstance(message, Message):
        message = Message.from_openai(message)
    if pin is not None:
        if type(pin) is not bool:
            raise InvalidMessage("pin is True, False or None")
        message = message.with_pin(pin)
    element, tokens = encode_message(message, count_tokens)
    return element, tokens, message.pinned


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
    _, count, _, tokens, *_ = map(str, str(command[REQUEST_PLACE]).split())
    elements = command[REQUEST_PLACE + 2 : REQUEST_PLACE + 2 + int(count)]
    return int(count), sum(len(element) for element in elements if isinstance(element, bytes)), int(tokens)
