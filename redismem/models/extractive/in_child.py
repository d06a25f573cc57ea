"""The extractive summariser in a child process at a lower priority, so that turns in this process come first.

The child runs this module.
"""

from __future__ import annotations

import asyncio
import logging
import math
import pickle
import time
from collections.abc import Sequence
from functools import partial

from redismem.concurrency.child import Child, ChildFailed, serve
from redismem.events import facts
from redismem.messages.message import Message
from redismem.models.extractive.summarizer import Extractive, compose
from redismem.text.word_counts import Sketch

log = logging.getLogger("redismem.worker")

_PAUSE_S = 60.0


class ExtractiveInChild(Extractive):
    """The same summaries as `Extractive`. If no child can be started, it writes them in this process."""

    def __init__(self) -> None:
        super().__init__()
        self.child = Child("redismem.models.extractive.in_child")
        self._rests_until_s = -math.inf

    async def _compose(self, before: str, messages: Sequence[Message], limit_bytes: int, sketch: Sketch | None) -> str:
        if time.monotonic() >= self._rests_until_s:
            # The second attempt is for a child that was killed, such as by the system when memory ran out.
            for is_last in (False, True):
                try:
                    return await self._ask(partial(pickle.dumps, (before, list(messages), limit_bytes, sketch)))
                except ChildFailed as failed:
                    if is_last:
                        self._rests_until_s = time.monotonic() + _PAUSE_S
                        text = "summaries are written in this process for %d s: their child process failed: %s"
                        log.warning(text, _PAUSE_S, failed, extra=facts(op="summary", reason=str(failed)))
        return await super()._compose(before, messages, limit_bytes, sketch)

    async def _ask(self, build: partial[bytes]) -> str:
        try:
            return (await asyncio.to_thread(lambda: self.child.ask(build()))).decode("utf-8", "surrogatepass")
        except asyncio.CancelledError:
            self.child.kill()  # otherwise the next summary would wait for this one
            raise

    async def aclose(self) -> None:
        """End the child."""
        await asyncio.to_thread(self.child.close)


def _answer(request: bytes) -> bytes:
    before, messages, limit_bytes, sketch = pickle.loads(request)  # from the parent alone
    work = compose(before, messages, limit_bytes, sketch)
    while True:
        try:
            next(work)
        except StopIteration as done:
            text: str = done.value
            return text.encode("utf-8", "surrogatepass")


if __name__ == "__main__":
    serve(_answer)
