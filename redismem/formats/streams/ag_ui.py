"""The format `ag-ui`: events of the Agent User Interaction Protocol, as `HttpAgent` reads them. No I/O."""

from __future__ import annotations

from typing import Any

from redismem.formats.streams.encoding import frame
from redismem.formats.streams.parts import End, Part, PartStream, describe_failure, text_of
from redismem.formats.streams.stream import StreamTurn

_NAMES = {"text": "TEXT_MESSAGE", "reasoning": "REASONING_MESSAGE"}


class AgUiStream(PartStream):
    """Writes protocol events. Session and turn are the thread and the run."""

    def __init__(self, turn: StreamTurn) -> None:
        super().__init__(turn)
        self._message_id = ""
        """The assistant message to which calls belong: the last text since a result."""

    def _write(self, kind: str, **members: Any) -> None:
        self._frames.append(frame({"type": kind, **members}))

    def _write_begin(self) -> None:
        self._write("RUN_STARTED", **self._run())
        if self._turn.kept is not None:
            self._write("MESSAGES_SNAPSHOT", messages=self._turn.kept)

    def _run(self) -> dict[str, str]:
        return {"threadId": self._turn.session_id, "runId": self._turn.turn_id}

    def _write_open(self, part: Part) -> None:
        if part.kind == "call":
            self._message_id = self._message_id or f"{self._turn.key}.{part.number}"
            names = {"toolCallId": part.id, "toolCallName": part.name}
            self._write("TOOL_CALL_START", **names, parentMessageId=self._message_id)
        elif part.kind == "reasoning":
            self._write("REASONING_START", messageId=part.id)
            self._write("REASONING_MESSAGE_START", messageId=part.id, role="reasoning")
        else:
            self._message_id = part.id
            self._write("TEXT_MESSAGE_START", messageId=part.id, role="assistant")

    def _write_delta(self, part: Part, delta: str) -> None:
        if part.kind == "call":
            self._write("TOOL_CALL_ARGS", toolCallId=part.id, delta=delta)
        else:
            self._write(f"{_NAMES[part.kind]}_CONTENT", messageId=part.id, delta=delta)

    def _write_close(self, part: Part) -> None:
        if part.kind == "call":
            self._write("TOOL_CALL_END", toolCallId=part.id)
            return
        self._write(f"{_NAMES[part.kind]}_END", messageId=part.id)
        if part.kind == "reasoning":
            self._write("REASONING_END", messageId=part.id)

    def _write_result(self, result: Part, content: Any) -> None:
        self._message_id = ""
        message_id = f"{self._turn.key}.{result.number}"
        self._write(
            "TOOL_CALL_RESULT", messageId=message_id, toolCallId=result.id, content=text_of(content), role="tool"
        )

    def _write_data(self, name: str, data: Any) -> None:
        self._write("CUSTOM", name=name, value=data)

    def _write_end(self, end: End) -> None:
        if end.outcome in ("done", "stopped"):
            kind = "success" if end.outcome == "done" else "cancelled"
            self._write("RUN_FINISHED", **self._run(), outcome={"type": kind})
        else:
            self._write("RUN_ERROR", message=describe_failure(end), code=end.outcome or "failed")
