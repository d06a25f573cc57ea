"""Each TooLarge of a session names the setting that limits it, with its variable; other limits are named as fixed."""

from __future__ import annotations

import ast
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.stores import Store

from redismem import Memory, Session, Settings, TooLarge

ROOT = Path(__file__).parents[1]
USER = {"role": "user", "content": "x"}
SYSTEM = {"role": "system", "content": "x" * 100}


async def fill_window(session: Session) -> None:
    for _ in range(20):
        await session.append(USER)


REFUSED: dict[str, tuple[dict[str, Any], Callable[[Session], Awaitable[Any]]]] = {
    "max_message_bytes": ({"max_message_bytes": 64}, lambda session: session.append(USER | {"content": "x" * 100})),
    "max_batch_count": ({"max_batch_count": 1}, lambda session: session.append(USER, USER)),
    "max_value_bytes": ({"max_value_bytes": 16}, lambda session: session.merge({"a": "x" * 100})),
    "max_params_count": ({"max_params_count": 1}, lambda session: session.merge({"a": 1, "b": 2})),
    "max_window_count": ({"max_window_count": 10}, fill_window),
    "max_window_bytes": (
        {"max_window_bytes": 64 * 1024},
        lambda session: session.append(*[USER | {"content": "x" * 40_000}] * 3),
    ),
    "max_pinned_count": ({"max_pinned_count": 0}, lambda session: session.append(SYSTEM)),
    "max_pinned_bytes": ({"max_pinned_bytes": 10}, lambda session: session.append(SYSTEM)),
}


@pytest.mark.parametrize("setting", REFUSED)
async def test_a_refusal_names_the_setting_and_its_variable(store: Store, namespace: str, setting: str) -> None:
    given, call = REFUSED[setting]
    async with store.memory(namespace, settings=Settings(**given)) as memory:
        await check_named(memory, setting, call)


async def check_named(memory: Memory, setting: str, call: Callable[[Session], Awaitable[Any]]) -> None:
    with pytest.raises(TooLarge) as refused:
        await call(memory.session("a"))
    assert f"{setting} (REDISMEM_{setting.upper()})" in refused.value.text


def unnamed(source: str) -> Iterator[int]:
    """Yield the lines of TooLarge errors that name neither a setting nor a fixed limit."""
    tree = ast.parse(source)
    for scope in ast.walk(tree):
        if not isinstance(scope, ast.Call) or getattr(scope.func, "id", "") != "TooLarge":
            continue
        text = ast.unparse(scope)
        if not any(word in text for word in ("over_limit(", "name_setting(", "{over}", "_too_many", "fixed limit")):
            yield scope.lineno


def test_no_refusal_leaves_its_limit_unnamed() -> None:
    sources = {file: file.read_text() for file in sorted((ROOT / "redismem").rglob("*.py"))}
    raising = {file: source for file, source in sources.items() if "TooLarge(" in source}
    assert len(raising) > 5
    assert [f"{file.relative_to(ROOT)}:{line}" for file, source in raising.items() for line in unnamed(source)] == []
    assert list(unnamed("raise TooLarge(f'{size} bytes, over {limit}')")) == [1]
    assert list(unnamed("raise TooLarge(f'{size} bytes, {over}')")) == []
