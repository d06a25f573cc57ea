"""Patterns of an operator, matched against what a user writes, in time that grows no faster than the text.

A backtracking matcher may need longer than the universe for one short answer. Here all ways through a pattern are
followed at once, a character at a time. So what looks back or ahead is refused: `\\1`, `(?=…)`, `\\b`, atomic groups.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, NamedTuple

from redismem.errors import InvalidSettings

# No type checker knows these modules in the same way twice.
codes: Any = import_module("re._constants")
parser: Any = import_module("re._parser")

_STATES_COUNT = 1_000
# Written as digits: a repeat of so many is not to be spelled out.
_MOST_COPIES = 500

Fits = Callable[[str], bool]
_BEGIN, _END = "begin", "end"


class _State(NamedTuple):
    """Takes a character that fits and leads on; without `fits` it leads on at once, if `where` allows it."""

    fits: Fits | None
    to: list[int]
    where: str = ""


class Pattern:
    """A compiled pattern. `fullmatch` costs a step for each character and state."""

    def __init__(self, text: str) -> None:
        """Raises InvalidSettings for what is no pattern, or none of those that can be matched so."""
        self._states: list[_State] = [_State(None, [])]
        try:
            parsed = parser.parse(text)
            if parsed.state.flags & ~re.UNICODE:
                raise InvalidSettings("a pattern has no flags")
            self._start = self._sequence(parsed, 0)
        except (re.error, RecursionError, OverflowError):
            raise InvalidSettings("this is no pattern") from None

    def fullmatch(self, text: str) -> bool:
        """Whether all of the text matches."""
        current = self._reached([self._start], 0, len(text))
        for at, char in enumerate(text, 1):
            stepped = (self._states[each] for each in current)
            following = [state.to[0] for state in stepped if state.fits is not None and state.fits(char)]
            current = self._reached(following, at, len(text))
            if not current:
                return False
        return 0 in current

    def _reached(self, states: Iterable[int], at: int, length: int) -> set[int]:
        found: set[int] = set()
        left = list(states)
        while left:
            number = left.pop()
            if number in found:
                continue
            found.add(number)
            fits, to, where = self._states[number]
            if fits is None and not (where == _BEGIN and at) and not (where == _END and at < length):
                left += to
        return found

    def _new(self, fits: Fits | None, to: list[int], where: str = "") -> int:
        if len(self._states) >= _STATES_COUNT:
            raise InvalidSettings("this pattern is too large")
        self._states.append(_State(fits, to, where))
        return len(self._states) - 1

    def _sequence(self, items: Iterable[Any], to: int) -> int:
        for code, argument in reversed(list(items)):
            to = self._item(code, argument, to)
        return to

    def _item(self, code: Any, argument: Any, to: int) -> int:
        if code in (codes.MAX_REPEAT, codes.MIN_REPEAT):
            least, most, inner = argument
            return self._repeat(least, most, inner, to)
        if code is codes.BRANCH:
            return self._new(None, [self._sequence(branch, to) for branch in argument[1]])
        if code is codes.SUBPATTERN:
            _, added, removed, inner = argument
            if added or removed:
                raise InvalidSettings("a pattern has no flags")
            return self._sequence(inner, to)
        if code is codes.AT and argument in (codes.AT_BEGINNING, codes.AT_BEGINNING_STRING):
            return self._new(None, [to], _BEGIN)
        if code is codes.AT and argument in (codes.AT_END, codes.AT_END_STRING):
            return self._new(None, [to], _END)
        return self._new(_one(code, argument), [to])

    def _repeat(self, least: int, most: Any, inner: Any, to: int) -> int:
        unbounded = most is codes.MAXREPEAT
        if max(least, 0 if unbounded else most) > _MOST_COPIES:
            raise InvalidSettings("this pattern is too large")
        if unbounded:
            loop = self._new(None, [to])
            self._states[loop].to.append(self._sequence(inner, loop))
            to = loop
        else:
            end = to
            for _ in range(most - least):
                to = self._new(None, [end, self._sequence(inner, to)])
        for _ in range(least):
            to = self._sequence(inner, to)
        return to


def _one(code: Any, argument: Any) -> Fits:
    """Whether a character is the one, or one of those, that this stands for."""
    if code is codes.LITERAL:
        return chr(argument).__eq__
    if code is codes.NOT_LITERAL:
        return chr(argument).__ne__
    if code is codes.ANY:
        return "\n".__ne__
    if code is codes.IN:
        return _class(argument)
    raise InvalidSettings("this pattern looks back or ahead, or holds on to what it has: such cannot be matched here")


_CATEGORIES = {
    codes.CATEGORY_DIGIT: r"\d",
    codes.CATEGORY_NOT_DIGIT: r"\D",
    codes.CATEGORY_SPACE: r"\s",
    codes.CATEGORY_NOT_SPACE: r"\S",
    codes.CATEGORY_WORD: r"\w",
    codes.CATEGORY_NOT_WORD: r"\W",
}


def _class(members: Any) -> Fits:
    negated, parts = False, []
    for code, argument in members:
        if code is codes.NEGATE:
            negated = True
        elif code is codes.LITERAL:
            parts.append(re.escape(chr(argument)))
        elif code is codes.RANGE:
            parts.append(f"{re.escape(chr(argument[0]))}-{re.escape(chr(argument[1]))}")
        else:
            parts.append(_CATEGORIES[argument])
    match = re.compile(f"[{'^' if negated else ''}{''.join(parts)}]").match
    return lambda char: match(char) is not None
