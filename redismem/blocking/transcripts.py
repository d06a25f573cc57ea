"""The blocking transcripts: each method runs the coroutine of the async method with the same name."""

from __future__ import annotations

from redismem.concurrency.run_sync import blocking
from redismem.record.transcripts import transcripts


class Transcripts:
    """The conversations that frameworks keep in records, without `await`. See `redismem.Memory.transcripts`."""

    __slots__ = ("_twin",)

    def __init__(self, twin: transcripts.Transcripts) -> None:
        self._twin = twin

    list = blocking(transcripts.Transcripts.list)
    read = blocking(transcripts.Transcripts.read)
