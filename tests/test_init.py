"""`import redismem` loads only the path of a turn; the rest is loaded by its first use."""

from __future__ import annotations

import subprocess
import sys

import redismem

LATE = ("redismem.project", "redismem.web", "redismem.workers", "redismem.models.http", "redismem.recall.embedder")
LATE_PACKAGES = ("numpy", "httpx", "redis", "fastapi", "uvicorn", "apscheduler", "lupa")
LOADED = f"import sys; print(*[name for name in {(*LATE, *LATE_PACKAGES)} if name in sys.modules])"


def modules_loaded_by(program: str) -> str:
    ran = subprocess.run([sys.executable, "-c", f"{program}\n{LOADED}"], capture_output=True, text=True, check=True)
    return ran.stdout.strip()


def test_the_import_loads_no_project_server_worker_or_model() -> None:
    assert modules_loaded_by("import redismem") == ""


def test_a_project_handle_loads_the_projects() -> None:
    program = "import redismem; redismem.Memory.connect('redis://127.0.0.1:1/0').project('apollo')"
    assert "redismem.project" in modules_loaded_by(program).split()


def test_every_public_name_is_there() -> None:
    assert [name for name in redismem.__all__ if not hasattr(redismem, name)] == []
