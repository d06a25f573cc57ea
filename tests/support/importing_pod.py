"""A process that imports a project again and again, each time killed by SIGKILL one write later than before.

    python -m support.importing_pod redis://… namespace folder

`folder` has `before/` and `after/`. Project p<n> is filled from the first, and then the import of the second into it is
killed in its place. At the end it says how many there were; the last one was not killed.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from redismem import Settings
from redismem.blocking import memory as blocking
from redismem.project.project import Project
from redismem.protocol.project import imports

LONGEST = 400
SETTINGS = Settings(deadline_s=60, reply_timeout_s=20)


def files_in(folder: Path) -> dict[str, str]:
    return {name: (folder / name).read_text() for name in Project.FILES}


def imported(url: str, namespace: str, folder: Path, number: int) -> None:
    with blocking.Memory.connect(url, namespace=namespace, settings=SETTINGS) as memory:
        project = memory.project(f"p{number}")
        project.import_files(files_in(folder / "before"))
        inner, left = memory.store.run, [number]

        async def run(call: Any, **options: Any) -> Any:
            left[0] -= call.op == "project_change"
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return await inner(call, **options)

        memory.store.run = run  # type: ignore[method-assign]
        project.import_files(files_in(folder / "after"), replace=True)


def main(url: str, namespace: str, folder: str) -> None:
    imports.PIECE_COUNT = 60  # so that there are several
    for number in range(LONGEST):
        child = os.fork()
        if child == 0:
            imported(url, namespace, Path(folder), number)
            os._exit(0)
        if os.waitpid(child, 0)[1] == 0:
            sys.stdout.write(f"{number + 1}\n")
            return
    raise AssertionError("it was killed each time")


if __name__ == "__main__":
    main(*sys.argv[1:])
