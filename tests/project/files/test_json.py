"""The files of an export are JSON documents, with any formatting."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.json_values import texts, values

from redismem.concurrency.run_sync import run_without_loop
from redismem.errors import InvalidItem
from redismem.project.files.json import entries_of, text_of, text_of_entry

entries = st.lists(st.dictionaries(texts, values, max_size=3), max_size=4)


def write_entries(found: list[dict[str, Any]], project: str = "apollo") -> str:
    async def each() -> AsyncIterator[str]:
        for entry in found:
            yield text_of_entry(entry)

    return run_without_loop(text_of("tasks.json", project, each()))


@given(entries, st.text(st.characters(exclude_categories=["Cs"]), max_size=9))
def test_it_is_the_document_with_two_blanks_a_level(found: list[dict[str, Any]], project: str) -> None:
    text = write_entries(found, project)
    document = {"format": 1, "project": project, "tasks": found}
    with contextlib.suppress(UnicodeEncodeError):  # halves of surrogate pairs have no bytes, and are escaped
        assert text.encode() == (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()
    assert list(entries_of("tasks.json", text)) == json.loads(text)["tasks"] == json.loads(json.dumps(found))


@given(entries, st.permutations(["format", "project", "more", "tasks"]), st.sampled_from([None, 1, "\t"]))
def test_it_is_read_in_any_form_that_json_may_have(
    found: list[dict[str, Any]], order: list[str], indent: int | str | None
) -> None:
    members = {"format": 1, "project": {"tasks": 5}, "more": [{"tasks": []}], "tasks": found}
    text = json.dumps({name: members[name] for name in order}, indent=indent)
    for form in (text, f" \r\n{text}\t ", text.replace(":", " : ", 1)):
        assert list(entries_of("tasks.json", form)) == json.loads(form)["tasks"]


WHOLE = '{"format": 1, "tasks": [{"a": 1}, {"b": [2]}]}'


@pytest.mark.parametrize("end", range(len(WHOLE)))
def test_what_is_cut_off_is_none(end: int) -> None:
    assert len(list(entries_of("tasks.json", WHOLE))) == 2
    with pytest.raises(InvalidItem, match=r"^tasks\.json is no JSON: line 1, column \d+$"):
        list(entries_of("tasks.json", WHOLE[:end]))


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("{", 1, 2),
        ("tasks", 1, 1),
        ('{"format": 1,\n "tasks": [1 2]}', 2, 14),
        ('{"format": 1, "tasks": [1,]}', 1, 27),
        ('{"format": 1, 5: 6, "tasks": []}', 1, 15),
        ('{"format" 1, "tasks": []}', 1, 11),
        ('{"format": 1, "tasks": []} {}', 1, 28),
        ('{"format": 1, "tasks": [],}', 1, 27),
    ],
)
def test_what_is_no_json_is_refused_with_the_place(text: str, line: int, column: int) -> None:
    with pytest.raises(json.JSONDecodeError):
        json.loads(text)
    with pytest.raises(InvalidItem) as refused:
        list(entries_of("tasks.json", text))
    assert str(refused.value) == f"tasks.json is no JSON: line {line}, column {column}"


@pytest.mark.parametrize(
    "text",
    [
        *('{"format": 2, "tasks": []}', '{"tasks": []}', '{"format": 1}', '{"format": 1, "decisions": []}', "{}", "[]"),
        *('{"format": 1, "tasks": {}}', '{"format": 1, "tasks": null}', '{"format": 1, "tasks": [], "tasks": []}'),
        *("1", "null", '"tasks"', "[" * 100_000),
    ],
)
def test_what_is_no_file_of_a_project_is_refused(text: str) -> None:
    with pytest.raises(InvalidItem, match=r"tasks\.json is no export of a project in format 1"):
        list(entries_of("tasks.json", text))


def test_a_file_of_another_name_is_refused() -> None:
    with pytest.raises(InvalidItem, match=r"an import consists of decisions\.json"):
        list(entries_of("other.json", WHOLE))
