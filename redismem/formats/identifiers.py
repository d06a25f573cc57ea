"""Call ids and tool names of characters that a provider accepts. No I/O."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

_ACCEPTED = ((".", 40), (".", 64), ("[A-Za-z0-9_-]", 64))
_NOT_SIMPLE = re.compile("[^A-Za-z0-9_-]")


OPENAI_CHAT, OPENAI_RESPONSES, SIMPLE = (re.compile(f"{chars}{{1,{most}}}", re.DOTALL) for chars, most in _ACCEPTED)
"""The call ids that OpenAI's two APIs accept, and those that Anthropic and Bedrock accept."""


def sound_id(call_id: str, accepted: re.Pattern[str], number: int = 1) -> str:
    """Return the id if a provider accepts it, else one made of its hash: the same one in every request.

    Any `number` but 1 makes another id of the same id.
    """
    if number == 1 and accepted.fullmatch(call_id):
        return call_id
    name = f"{call_id} {number}".encode("utf-8", "surrogatepass")
    return f"call_{hashlib.blake2b(name, digest_size=12).hexdigest()}"


def other_ids(call_id: str) -> Iterator[str]:
    """Yield the ids that views give to a call with this id, by which a client may answer it."""
    yield from {sound_id(call_id, accepted) for accepted in (OPENAI_CHAT, OPENAI_RESPONSES, SIMPLE)} - {call_id}


def tool_name(name: Any, refused: re.Pattern[str] = _NOT_SIMPLE) -> str:
    """Return the name of a tool with `_` in place of refused characters, at most 64 characters long."""
    return refused.sub("_", name[:64]) if isinstance(name, str) and name else "unnamed"


class CallIds:
    """Assigns unique call ids. A result refers to the newest call with its stored id."""

    def __init__(self, accepted: re.Pattern[str] = SIMPLE) -> None:
        self._accepted = accepted
        self._uses: Counter[str] = Counter()
        self._newest: dict[str, list[str]] = {}

    def begin_turn(self) -> None:
        """Forget the calls of the turn before."""
        self._newest = {}

    def assign(self, call_id: str) -> str:
        """Return a new id for a call. Stored ids are not unique: some servers count from 0 in each answer."""
        self._uses[call_id] += 1
        new = sound_id(call_id, self._accepted, self._uses[call_id])
        self._newest.setdefault(call_id, []).append(new)
        return new

    def find(self, call_id: str) -> str:
        """Return the assigned id of the call that a result answers."""
        return self._newest[call_id][0] if call_id in self._newest else sound_id(call_id, self._accepted)
