"""A process that works off what waits in projects, until it is killed: its clock stands still.

    python -m support.extracting_pod redis://… namespace http://…/v1 now_ms

It says `ready` once it has begun.
"""

from __future__ import annotations

import asyncio
import sys
from functools import partial

from redismem import Memory, Settings
from redismem.models import open_model
from redismem.workers.scheduler import Scheduler


async def main(url: str, namespace: str, base_url: str, now_ms: str) -> None:
    settings = Settings(deadline_s=60, reply_timeout_s=20, tick_s=0.01)
    model = open_model("openai", "some-model", "key", base_url=base_url, allow_http=True)
    workers = partial(Scheduler, extraction=model)
    async with Memory.connect(url, namespace=namespace, settings=settings, clock=lambda: int(now_ms), workers=workers):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
