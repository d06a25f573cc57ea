"""The format `ai`: version 1 of the UI message stream, which `useChat` of the Vercel AI SDK reads. No I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from redismem.formats.streams.encoding import SSE_HEADERS, frame
from redismem.formats.streams.parts import End, Part, PartStream, describe_failure
from redismem.formats.streams.stream import StreamTurn

_DONE = b"data: [DONE]\n\n"
_CUT = "The turn ended before the input was complete."
_NO_JSON = "The input is not JSON."


class AiSdkStream(PartStream):
    """Writes chunks. The parts behind a tool's result are another step, as in the streams of the SDK.

    Without steps, a client that resubmits once all calls of the last step have results would do so in vain.
    """

    content_headers: Mapping[str, str] = {**SSE_HEADERS, "x-vercel-ai-ui-message-stream": "v1"}

    def __init__(self, turn: StreamTurn) -> None:
        super().__init__(turn)
        self._has_results = False
        """True if the step has a result."""

    def close(self) -> bytes:
        """Return the mark that ends a complete stream; `b""` if the turn has not ended."""
        return _DONE if self._has_ended else b""

    def _write(self, kind: str, **members: Any) -> None:
        self._frames.append(frame({"type": kind, **members}))

    def _write_begin(self) -> None:
        self._write("start", messageId=self._turn.message_id or self._turn.key)
        self._write("start-step")

    def _write_open(self, part: Part) -> None:
        others_count = len(self._open_calls) - (part.kind == "call")
        if self._has_results and not others_count:
            self._has_results = False
            self._write("finish-step")
            self._write("start-step")
        if part.kind == "call":
            self._write("tool-input-start", toolCallId=part.id, toolName=part.name)
        else:
            self._write(f"{part.kind}-start", id=part.id)

    def _write_delta(self, part: Part, delta: str) -> None:
        if part.kind == "call":
            part.pieces.append(delta)
            self._write("tool-input-delta", toolCallId=part.id, inputTextDelta=delta)
        else:
            self._write(f"{part.kind}-delta", id=part.id, delta=delta)

    def _write_close(self, part: Part) -> None:
        if part.kind != "call":
            self._write(f"{part.kind}-end", id=part.id)
            return
        arguments = part.joined()
        call = {"toolCallId": part.id, "toolName": part.name}
        try:
            given = json.loads(arguments) if arguments.strip() else {}
        except (ValueError, RecursionError):
            self._write("tool-input-error", **call, input=arguments, errorText=_NO_JSON if part.is_whole else _CUT)
            return
        self._write("tool-input-available", **call, input=given)

    def _write_result(self, result: Part, content: Any) -> None:
        if result.is_answer:  # the SDK throws an error at a result without a call
            self._has_results = True
            self._write("tool-output-available", toolCallId=result.id, output=content)

    def _write_data(self, name: str, data: Any) -> None:
        self._write(f"data-{name}", data=data)

    def _write_end(self, end: End) -> None:
        if end.outcome == "stopped":
            self._write("abort", reason=end.reason or end.outcome)
        elif end.outcome != "done":
            self._write("error", errorText=describe_failure(end))
        self._write("finish-step")
        self._write("finish", finishReason={"done": "stop", "stopped": "other"}.get(end.outcome, "error"))
