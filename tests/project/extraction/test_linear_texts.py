"""Processing an item, a prompt or an answer takes time linear in its length, whatever it contains."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from text.test_linear import LONG, SHAPES, check_growth

from redismem import RedismemError
from redismem.concurrency.run_sync import run_without_loop
from redismem.project.background import ProjectContext, Summary
from redismem.project.extraction.answer import parse_answer, user_prompt
from redismem.project.files.export import _parse_files
from redismem.project.items import fields, indexes
from redismem.project.items.records import Decision, Entity, Task
from redismem.project.items.schema import DECISION, ENTITY, TASK
from redismem.project.items.versions import Delta, decode_body, encode_body, fold
from redismem.project.queries.query import Query, decode_cursor


async def _at_once(at: int) -> None:
    """A transport whose yields return at once."""


def state(kind: Any, **sets: Any) -> Any:
    return fold(kind, [Delta(1, 1, 1, "n", sets)])


def render(text: str) -> None:
    context = ProjectContext(
        "apollo",
        Summary(1, 1, 1, 1),
        tuple(Decision.of("d", state(DECISION, title=text, rationale=text, status="accepted")) for _ in range(5)),
        tuple(Task.of("t", state(TASK, title=text, blocked_by=[text], status="blocked")) for _ in range(5)),
        tuple(Entity.of("e", state(ENTITY, name=text, properties={"a": text})) for _ in range(5)),
    )
    context.format(max_tokens=200)


def store_and_load(text: str) -> None:
    delta = Delta(1, 1, 1, "n", {"title": text, "status": "backlog"})
    decode_body(TASK, encode_body(TASK, state(TASK, title=text, status="backlog"), delta))


def suppress_refusals(read: Callable[[str], object]) -> Callable[[str], object]:
    def reading(text: str) -> None:
        with contextlib.suppress(RedismemError, UnicodeError):
            read(text)

    return reading


READERS: dict[str, Callable[[str], object]] = {
    "text": lambda text: fields.text(text, "x"),
    "line": lambda text: fields.line(text, "x"),
    "tag": lambda text: fields.tag(text, "x"),
    "words": indexes.words,
    "words of an item": lambda text: indexes.places(DECISION, state(DECISION, description=text, status="accepted")),
    "a query": lambda text: Query.of(TASK, {"text": text}).fits(state(TASK, title=text, status="backlog")),
    "a cursor": decode_cursor,
    "an item": store_and_load,
    "a context": render,
    "an answer": lambda text: parse_answer(text, ()),
    "an answer between fences": lambda text: parse_answer(f"```json {text}```", ()),
    "a question": lambda text: user_prompt([], [("t-1", text)]),
    "an import": lambda text: run_without_loop(_parse_files({"tasks.json": text}, 1 << 20, _at_once)),
}


@pytest.mark.parametrize("reader", READERS)
def test_reading_any_text_takes_linear_time(reader: str) -> None:
    for name, shape in SHAPES.items():
        check_growth(f"{reader}, {name}", suppress_refusals(READERS[reader]), shape, LONG // 2)
