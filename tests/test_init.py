"""`import redismem` loads only the path of a turn; the rest is loaded by its first use."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.redis_server import RedisServer

import redismem

LATE = (
    "redismem.project",
    "redismem.web",
    "redismem.workers.scheduler",
    "redismem.models.http",
    "redismem.recall.embedder",
)
LATE_PACKAGES = ("numpy", "httpx", "redis", "fastapi", "uvicorn", "apscheduler", "lupa")
LOADED = f"import sys; print(*[name for name in {(*LATE, *LATE_PACKAGES)} if name in sys.modules])"


def modules_loaded_by(program: str) -> str:
    ran = subprocess.run([sys.executable, "-c", f"{program}\n{LOADED}"], capture_output=True, text=True, check=True)
    return ran.stdout


def test_the_import_loads_no_project_server_worker_or_model() -> None:
    import_it = "import sys, redismem; print(*{'pydantic', 'asyncio', 'msgspec'} & set(sys.modules), sep=',')"
    open_project = "redismem.Memory.connect('redis://127.0.0.1:1/0').project('apollo')"
    program = "\n".join((import_it, LOADED, "import redismem.slots", LOADED, open_project))
    *before, of_the_project, _ = modules_loaded_by(program).split("\n")
    assert before == [""] * 3
    assert "redismem.project" in of_the_project.split()


TURN = """
import asyncio
from redismem import Memory
async def turn():
    async with Memory.connect({url!r}, namespace={namespace!r}) as memory:
        await memory.session("user-42").append({{"role": "user", "content": "Where is my order?"}})
asyncio.run(turn())
"""
NOT_OF_AN_APPEND = [
    *("redismem.recall.recall", "redismem.store.fallback.fallback"),
    *("redismem.models", "redismem.text", "redismem.formats.anthropic"),
]


def test_a_first_append_over_the_lane_loads_no_redis_py_and_nothing_that_other_calls_need(
    redis_server: RedisServer, namespace: str
) -> None:
    program = TURN.format(url=redis_server.url, namespace=namespace)
    program += f"import sys; print(*[name for name in {NOT_OF_AN_APPEND} if name in sys.modules])"
    assert modules_loaded_by(program).strip() == ""


def test_names_load_with_their_first_use_and_an_unknown_one_raises() -> None:
    assert set(redismem.__all__) <= set(dir(redismem))
    with pytest.raises(AttributeError, match="'redismem' has no attribute 'Memry'"):
        _ = redismem.Memry


def test_every_public_name_is_there() -> None:
    assert [name for name in redismem.__all__ if not hasattr(redismem, name)] == []
