"""Write and read the files of an export one entry at a time, so that a large file does not block the event loop."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

from redismem.errors import InvalidItem

FORMAT = 1
FILES = {"decisions.json": "d", "tasks.json": "t", "entities.json": "e", "conversations.json": "c"}
_SPACE = re.compile(r"[ \t\n\r]*")
_decode = json.JSONDecoder().raw_decode


async def text_of(name: str, project: str, entry_texts: AsyncIterator[str]) -> str:
    """Return the text of a file with these entries, as JSON indented by two spaces."""
    head = _dump({"format": FORMAT, "project": project}).removesuffix("\n}")
    parts = [text async for text in entry_texts]
    body = "[\n    " + ",\n    ".join(parts) + "\n  ]" if parts else "[]"
    return f'{head},\n  "{_list_of(name)}": {body}\n}}\n'


def text_of_entry(entry: dict[str, Any]) -> str:
    """Return an entry as it appears in a file."""
    return _dump(entry).replace("\n", "\n    ")


def entries_of(name: str, text: str) -> Iterator[Any]:
    """Yield the entries of a file. Raises InvalidItem if the file is no export, possibly only after the last entry."""
    if name not in FILES:
        raise InvalidItem(f"an import consists of {', '.join(FILES)}")
    reader, format, lists_count = _Reader(text), None, 0
    try:
        for member in reader.members():
            if member == _list_of(name):
                lists_count += 1
                yield from reader.elements()
            elif member == "format":
                format = reader.value()
            else:
                reader.value()
        is_export = (format, lists_count) == (FORMAT, 1)
        reader.end()
    except json.JSONDecodeError as cause:
        raise InvalidItem(f"{name} is no JSON: line {cause.lineno}, column {cause.colno}") from None
    except (ValueError, RecursionError):
        is_export = False
    if not is_export:
        raise InvalidItem(f"{name} is no export of a project in format {FORMAT}")


def project_of(text: str) -> str | None:
    """Return the name of the exported project; `None` if the file does not contain a name."""
    reader = _Reader(text)
    try:
        for member in reader.members():
            value = reader.value()
            if member == "project":
                return value if isinstance(value, str) else None
    except (ValueError, RecursionError):
        pass
    return None


def _list_of(name: str) -> str:
    return name.removesuffix(".json")


def _dump(value: dict[str, Any]) -> str:
    text = json.dumps(value, indent=2, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # a message may contain lone surrogates
        return json.dumps(value, indent=2)
    return text


class _Reader:
    """Read JSON member by member. Raises JSONDecodeError if it is not JSON, ValueError if its structure differs."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def members(self) -> Iterator[str]:
        """Yield the names of an object's members; the caller must read each value."""
        self._open("{")
        if self._next() == "}":
            self._expect("}")
            return
        while True:
            if self._next() != '"':
                raise self._json_error()
            name = self.value()
            self._expect(":")
            yield name
            if self._expect(",}") == "}":
                return

    def elements(self) -> Iterator[Any]:
        """Yield the elements of an array."""
        self._open("[")
        if self._next() == "]":
            self._expect("]")
            return
        while True:
            yield self.value()
            if self._expect(",]") == "]":
                return

    def value(self) -> Any:
        self._next()
        value, self._at = _decode(self._text, self._at)
        return value

    def end(self) -> None:
        """Check that nothing follows the JSON value."""
        if self._next():
            raise self._json_error()

    def _open(self, sign: str) -> None:
        if self._next() != sign:
            self.value()  # raises JSONDecodeError if it is not JSON at all
            raise ValueError(f"{sign} was expected")
        self._at += 1

    def _expect(self, expected: str) -> str:
        found = self._next()
        if not found or found not in expected:
            raise self._json_error()
        self._at += 1
        return found

    def _json_error(self) -> json.JSONDecodeError:
        return json.JSONDecodeError("no JSON", self._text, self._at)

    def _next(self) -> str:
        """Skip whitespace and return the next character; "" at the end."""
        blank = _SPACE.match(self._text, self._at)
        assert blank is not None
        self._at = blank.end()
        return self._text[self._at : self._at + 1]
