"""The elements of a message of any format: texts, tool calls, results, thoughts and media. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

from redismem.formats.forms import DISCRIMINATORS, TEXT, UNKNOWN, Form

Key = tuple[str, str]
"""`id` and the id of a call. A result without an id has `function` and the function's name as its key."""
Kind = Literal["call", "result", "both", "thought", "text", "nested", "media", "strings", "note"]
NO_KEY: Key = ("", "")
"""The key of a result without an id or name."""
_DEPTH_LIMIT = 64
_DATA_CHARS = 200
_KIND_KEYS = frozenset(name for name, _ in DISCRIMINATORS)
_DATA_KEYS = frozenset(
    [
        *("type", "kind", "part_kind", "block_type", "state", "id", "file_id", "vector_store_id", "identifier"),
        *("media_type", "mime_type", "mediaType", "mimeType", "detail", "format", "signature", "encrypted_content"),
        *("url", "uri", "image_url", "file_url", "file_uri", "fileUri", "path", "data", "file_data", "bytes", "image"),
        *("cache_control", "providerMetadata", "providerOptions", "provider_details", "thought_signature", "video"),
    ]
)
"""The fields of a media part without words."""


class ToolCall(NamedTuple):
    """A tool call in a message."""

    key: Key
    name: Any
    arguments: Any
    by_name: Key | None = None
    """The key of results without an id that answer this call: its function's name.

    `None` if results always have the id.
    """


class ToolResult(NamedTuple):
    """A tool result in a message."""

    key: Key
    content: Any
    name: Any = None
    is_error: bool = False


class Element(NamedTuple):
    """One unit of a message. The kind `both` is a call with its own result; `form` is the unit's row in the table.

    `path` leads to the part inside the message, or to a list with the part at index `place`; `place` -1 means no list.
    """

    kind: Kind
    part: Any
    form: Form = TEXT
    path: tuple[str, ...] = ()
    place: int = -1
    text: str = ""
    call: ToolCall | None = None
    result: ToolResult | None = None
    inner: Sequence[Any] = ()
    """The parts of a nested part."""
    is_repeat: bool = False
    """True if the message contains this call in `tool_calls` too."""


def make_key(call_id: object, space: str = "id") -> Key:
    """Return the key of a call from its id, or from its function's name, of any type."""
    return space, call_id if isinstance(call_id, str) else repr(call_id)


def kind_of(part: Any) -> str:
    """Return the kind of a part: its type, or the name of its first field."""
    kinds = (part.get(name) for name, _ in DISCRIMINATORS)
    return next((kind for kind in kinds if isinstance(kind, str)), None) or next(iter(part), "part")


def words_beside(element: Element) -> Iterator[str]:
    """Yield the texts of a media part, such as its title, or all texts of a part without a form.

    Other parts yield nothing.
    """
    if element.kind in ("media", "strings"):
        yield from _strings_of(element.part, _KIND_KEYS if element.form is UNKNOWN else _DATA_KEYS)


def _strings_of(value: Any, left_out: frozenset[str]) -> Iterator[str]:
    """Yield the texts in a value, in order and without base64; nothing deeper than 64 levels."""
    waiting: list[tuple[Any, int]] = [(value, 0)]
    while waiting:
        inner, depth = waiting.pop()
        if isinstance(inner, str):
            if inner.strip() and not is_data(inner):
                yield inner
        elif depth < _DEPTH_LIMIT and isinstance(inner, dict):
            is_text = inner.get("type") == "text"  # the field `data` of a source of this type contains text
            items = [item for key, item in inner.items() if key not in left_out or (is_text and key == "data")]
            waiting += [(item, depth + 1) for item in reversed(items)]
        elif depth < _DEPTH_LIMIT and isinstance(inner, list):
            waiting += [(item, depth + 1) for item in reversed(inner)]


def is_data(text: str) -> bool:
    """True for a long text without spaces, such as base64."""
    return len(text) > _DATA_CHARS and (start := text[:_DATA_CHARS]).isascii() and not any(map(str.isspace, start))


class Ends(NamedTuple):
    """The calls of a message that wait for results, and the results that answer earlier messages."""

    made: list[ToolCall]
    answered: list[ToolResult]


def ends_of(elements: Iterable[Element]) -> Ends:
    """Return the calls and results of a message, without the calls that are answered inside it, and their results."""
    made: dict[Key, ToolCall] = {}
    names: dict[Key, list[Key]] = {}
    answered: list[ToolResult] = []
    for element in elements:
        call, result = element.call, element.result
        if element.kind == "call" and call is not None and call.key != NO_KEY and not element.is_repeat:
            made[call.key] = call
            if element.form.inside and call.by_name is not None:
                names.setdefault(call.by_name, []).append(call.key)
        elif element.kind == "result" and result is not None and result.key != NO_KEY:
            key = result.key
            if element.form.inside and key not in made and names.get(key):
                key = names[key].pop(0)
            if element.form.inside and key in made:
                del made[key]
            else:
                answered.append(result)
    return Ends(list(made.values()), answered)


def is_blank(element: Element) -> bool:
    """True for an element without words, calls, results or media."""
    return element.kind == "note" or (element.kind == "text" and not element.text.strip())
