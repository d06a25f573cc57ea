"""Check and normalise the fields of items. Each check returns the form to store, or raises InvalidItem.

Errors name the field and a size, never the value.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from redismem.errors import InvalidItem, TooLarge
from redismem.messages.values import pack
from redismem.text.normal_forms import REGION_FLAG, fold_case, normalize

LINE_CHARS = 300
TEXT_BYTES = 16 * 1024
TAG_CHARS = 64
REASON_CHARS = 1_000
LIST_COUNT = 200
PROPERTIES_BYTES = 16 * 1024
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
_NOT_IN_A_LINE = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029]")
# Characters without a glyph: zero-width ones, marks of direction, and tags. Names that differ only by them look alike.
_INVISIBLE = re.compile(
    f"({REGION_FLAG})|[\xad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]"
)
# Joiners matter in scripts such as Devanagari and Arabic, and in emoji, but not next to Latin, Greek or Cyrillic.
_IDLE_JOINERS = re.compile("(?<![^\x00-\u058f])[\u200c\u200d]++|(?<![\u200c\u200d])[\u200c\u200d]++(?![^\x00-\u058f])")
_HALF = re.compile("[\\ud800-\\udfff]")
_ITEM_ID = re.compile(r"[cdet]-[0-9a-hjkmnp-tv-z]{18}")
_WHOSE = {"d": "a decision's", "t": "a task's", "e": "an entity's", "c": "a conversation's"}

Check = Callable[[Any, str], Any]


def suggest_name(name: str, known: Collection[str]) -> str:
    """Return the end of an error text that suggests the closest known name; "" if no name is close."""
    near = [each for each in known if each.startswith(f"{name}_")] or difflib.get_close_matches(name, known, 1)
    return f"; did you mean {near[0]}?" if near else ""


def text(value: Any, name: str) -> str:
    """A string of at most 16 KiB."""
    if not isinstance(value, str) or _HALF.search(value):
        raise InvalidItem(f"{name} must be a string")
    if len(value) * 4 > TEXT_BYTES and (size := len(value.encode())) > TEXT_BYTES:
        raise TooLarge(f"{name} has {size} bytes, over {TEXT_BYTES}, a fixed limit")
    return str.__str__(value)


def line(value: Any, name: str) -> str:
    """A string of 1 to 300 characters on one line, without invisible characters and surrounding spaces."""
    visible = _IDLE_JOINERS.sub("", _INVISIBLE.sub(r"\1", text(value, name)))
    stripped = normalize("NFC", visible).strip()
    if not stripped or _NOT_IN_A_LINE.search(stripped):
        raise InvalidItem(f"{name} must be a string on one line, and not empty")
    if len(stripped) > LINE_CHARS:
        raise TooLarge(f"{name} has {len(stripped)} characters, over {LINE_CHARS}, a fixed limit")
    return stripped


def tag(value: Any, name: str = "a tag") -> str:
    """A string of at most 64 characters on one line, casefolded."""
    folded = fold_case(line(value, name))
    if len(folded) > TAG_CHARS:
        raise TooLarge(f"{name} has {len(folded)} characters, over {TAG_CHARS}, a fixed limit")
    return folded


def _to_list(value: Any, name: str) -> list[Any]:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise InvalidItem(f"{name} must be a list")
    values = list(value)
    if len(values) > LIST_COUNT:
        raise TooLarge(f"{name} has {len(values)} entries, over {LIST_COUNT}, a fixed limit")
    return values


def tags(value: Any, name: str) -> list[str]:
    """The tags of a list, unique and sorted."""
    return sorted({tag(each, name) for each in _to_list(value, name)})


def texts(value: Any, name: str) -> list[str]:
    """The strings of a list, in order."""
    return [text(each, name) for each in _to_list(value, name)]


def whole(value: Any, name: str) -> int:
    """An integer, such as a count or a time in milliseconds."""
    if type(value) is not int or abs(value) >= 1 << 53:
        raise InvalidItem(f"{name} must be an integer")
    return value


def flag(value: Any, name: str) -> bool:
    """True or False."""
    if type(value) is not bool:
        raise InvalidItem(f"{name} must be true or false")
    return value


def reason(value: Any) -> str:
    """The reason of a change: a string of at most 1,000 characters."""
    checked = text(value, "the reason")
    if len(checked) > REASON_CHARS:
        raise TooLarge(f"the reason has {len(checked)} characters, over {REASON_CHARS}, a fixed limit")
    return checked


def entries(what: str, *checks: Check) -> Check:
    """Return a check for a list of entries, each a list of values that pass these checks."""

    def check(value: Any, name: str) -> list[list[Any]]:
        if not isinstance(value, list) or not all(isinstance(e, list) and len(e) == len(checks) for e in value):
            raise InvalidItem(f"{name} must be a list of {what}")
        return [[each(part, name) for each, part in zip(checks, entry, strict=True)] for entry in value]

    return check


def every(check: Check) -> Check:
    """Return a check for a list of any length whose entries all pass this check."""

    def check_all(value: Any, name: str) -> list[Any]:
        if not isinstance(value, list):
            raise InvalidItem(f"{name} must be a list")
        return [check(each, name) for each in value]

    return check_all


def optional(check: Check) -> Check:
    """Return a check that also accepts None."""
    return lambda value, name: None if value is None else check(value, name)


def choice(*options: str) -> Check:
    """Return a check for one of these words."""

    def check(value: Any, name: str) -> str:
        if not isinstance(value, str) or value not in options:
            raise InvalidItem(f"{name} must be one of {', '.join(options)}")
        return str.__str__(value)

    return check


def is_item_id(kind: str, value: str) -> bool:
    """True if a string has the form of an id of this kind."""
    return value.startswith(f"{kind}-") and _ITEM_ID.fullmatch(value) is not None


def item_id(kind: str) -> Check:
    """Return a check for an id of a kind; the item need not exist."""

    def check(value: Any, name: str) -> str:
        if not isinstance(value, str) or not is_item_id(kind, value):
            is_other = isinstance(value, str) and _ITEM_ID.fullmatch(value) is not None
            problem = f"{_WHOSE[value[0]]} id" if is_other else "no id of an item"
            raise InvalidItem(f"{name} is {problem}: {_WHOSE[kind]} is {kind}- and 18 digits and small letters")
        return value

    return check


def item_ids(kind: str) -> Check:
    """Return a check for a list of ids of a kind, made unique."""
    return lambda value, name: list(dict.fromkeys(item_id(kind)(each, name) for each in _to_list(value, name)))


def moment(value: Any, name: str) -> int:
    """Convert a datetime with a time zone to milliseconds since 1970, rounded down."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise InvalidItem(f"{name} must be a datetime with a time zone")
    if not _FIRST <= value <= _LAST:
        raise InvalidItem(f"{name} must lie in the years 1 to 9999 in UTC")
    return (value - _EPOCH) // timedelta(milliseconds=1)


def as_datetime(ms: int) -> datetime:
    """Convert milliseconds since 1970 to a datetime in UTC; any beyond, as once stored, to the first or last one."""
    try:
        return _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return _FIRST if ms < 0 else _LAST


def properties(value: Any, name: str) -> dict[str, Any]:
    """A dict of JSON values by names."""
    if not isinstance(value, Mapping):
        raise InvalidItem(f"{name} must be a dict")
    checked = {tag_like(key, name): each for key, each in value.items()}
    if (size := len(pack(checked, InvalidItem, name))) > PROPERTIES_BYTES:
        raise TooLarge(f"{name} has {size} bytes, over {PROPERTIES_BYTES}, a fixed limit")
    return checked


def tag_like(value: Any, name: str) -> str:
    """A string of at most 64 characters on one line, in its original case."""
    checked = line(value, name)
    if len(checked) > TAG_CHARS:
        raise TooLarge(f"a name in {name} has {len(checked)} characters, over {TAG_CHARS}, a fixed limit")
    return checked
