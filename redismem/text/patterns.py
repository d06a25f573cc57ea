"""Patterns written by operators, matched against user input in linear time by the Rust regex engine.

Only the syntax that Python's `re` and the Rust engine share is accepted. Unlike in `re`, `\\w` includes combining
marks.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from pydantic_core import SchemaError, SchemaValidator, core_schema

from redismem.errors import InvalidSettings

# The engines disagree about possessive repeats (`a*+`), set operations (`[a&&b]`), brackets within sets and `\<`; the
# Rust engine has no look-around.
_COMMON_SYNTAX = re.compile(
    r"""(?:
        (?: \\ (?: [dDsSwWA] | [afnrtv] | x[0-9a-fA-F]{2} | u[0-9a-fA-F]{4} | [^a-zA-Z0-9<>] )
          | \[ \^?+ (?: \\ [^bB<>] | -(?!-) | &(?!&) | ~(?!~) | [^]\\[&~-] )++ \]
          | \( (?: \?: | \?P<\w+> | (?!\?) )
          | [^][\\(*+?{]
          | \]
        )
        (?: (?: [*+?] | \{ \d+ (?: ,\d* )? \} ) \?? (?! [*+?{] ) )?
    )*+""",
    re.VERBOSE | re.DOTALL,
)


class Pattern:
    """A compiled pattern."""

    def __init__(self, text: str) -> None:
        """Compile a pattern.

        Raises InvalidSettings if the pattern is invalid or too large, or uses syntax that Python's `re` and the Rust
        engine do not share.
        """
        if _COMMON_SYNTAX.fullmatch(text) is None:
            raise InvalidSettings("the pattern is invalid, or looks back or ahead, has flags or possessive repeats")
        try:
            _compile(text)  # compiled without the group first, because `a)(b` would close the group
            self._validator = _compile(rf"\A(?:{text})\z")
        except SchemaError as error:
            is_too_large = "size limit" in str(error)
            raise InvalidSettings("the pattern is too large" if is_too_large else "the pattern is invalid") from None

    def fullmatch(self, text: str) -> bool:
        """True if the whole text matches."""
        return self._validator.isinstance_python(text)


def searcher(pattern: str) -> Callable[[str], bool]:
    """Return a function that tells whether a text contains the pattern, which the Rust engine compiles."""
    return _compile(pattern).isinstance_python


def _compile(pattern: str) -> SchemaValidator:
    return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
