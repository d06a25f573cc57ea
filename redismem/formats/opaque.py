"""Keep opaque messages in their places while calls and results are paired around them. No I/O."""

from __future__ import annotations

from collections import deque

from redismem.formats.forms import Payload
from redismem.formats.tool_pairing import provider_view
from redismem.messages.message import Opaque


def pair_around_opaque(payloads: list[Payload], pinned_count: int, cut_at: int | None) -> list[Payload]:
    """Return `provider_view` of the messages that are not opaque, with the `Opaque` dicts back in their places."""
    opaque = deque((at, payload) for at, payload in enumerate(payloads) if type(payload) is Opaque)
    before_pinned = sum(at < pinned_count for at, _ in opaque)
    before_cut = 0 if cut_at is None else sum(at < cut_at for at, _ in opaque)
    others = [payload for payload in payloads if type(payload) is not Opaque]
    view = provider_view(others, pinned_count - before_pinned, None if cut_at is None else cut_at - before_cut)
    places = {id(payload): at for at, payload in enumerate(payloads)}
    shown: list[Payload] = []
    for payload in view:
        # A changed message has no place: an opaque one goes before the first unchanged message behind it.
        while opaque and opaque[0][0] < places.get(id(payload), -1):
            shown.append(opaque.popleft()[1])
        shown.append(payload)
    return [*shown, *(payload for _, payload in opaque)]


def reveal_opaque(payloads: list[Payload]) -> list[Payload]:
    """Return the messages with the dicts of the opaque ones."""
    return [payload.payload if type(payload) is Opaque else payload for payload in payloads]
