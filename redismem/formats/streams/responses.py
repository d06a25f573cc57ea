"""The format `openai`: events of OpenAI's Responses API, numbered by the events of the log alone. No I/O."""

from __future__ import annotations

import base64
import binascii
from typing import Any, NamedTuple

from redismem.errors import InvalidMessage
from redismem.formats.streams.encoding import frame
from redismem.formats.streams.parts import End, Part, PartStream, describe_failure, text_of
from redismem.formats.streams.stream import Event, StreamTurn

_PREFIX = "resp_"
_COUNTS = (("input_tokens", "prompt_tokens"), ("output_tokens", "completion_tokens"))
"""The names of the counts in the Responses API and in the older one."""
_INCOMPLETE = ("max_output_tokens", "content_filter")
"""The reasons that the API knows. Typed clients refuse others, so those are in the metadata."""
_NO_DETAILS = {
    "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
    "output_tokens_details": {"reasoning_tokens": 0},
}


class ResponseName(NamedTuple):
    """The turn that a response's id names."""

    session_id: str
    turn_id: str
    generation: str


def response_id(turn: StreamTurn) -> str:
    """Return the id of a turn's response. It contains session, turn and generation, so any server finds the turn."""
    name = f"{turn.generation}\n{turn.session_id}\n{turn.turn_id}"
    return _PREFIX + base64.urlsafe_b64encode(name.encode("utf-8", "surrogatepass")).decode().rstrip("=")


def parse_response_id(id: str) -> ResponseName:
    """Return what the id of a response names.

    Raises:
        InvalidMessage: The id is not one of `response_id`.
    """
    body = id.removeprefix(_PREFIX)
    try:
        name = base64.b64decode(body + "=" * (-len(body) % 4), b"-_", validate=True).decode("utf-8", "surrogatepass")
        generation, session_id, turn_id = name.split("\n", 2)
    except (binascii.Error, ValueError):
        raise InvalidMessage("the id of a response is one that this server gave out, such as resp_…") from None
    return ResponseName(session_id, turn_id, generation)


class ResponsesStream(PartStream):
    """Writes events of a response. Data and notices have no event here, and the SDKs refuse unknown ones.

    The format repeats the whole text at the end of a part and of the response, so the stream keeps it until then.
    """

    def __init__(self, turn: StreamTurn) -> None:
        super().__init__(turn)
        self._sequence = 0
        self._is_in_log = True
        self._output: dict[int, dict[str, Any]] = {}
        self._status = "in_progress"
        self._fields: dict[str, Any] = {}

    def convert(self, event_id: str, event: Event) -> bytes:
        """Return the bytes of an event. An end without an id is told in any case.

        It is of a turn whose log is gone: there are fewer events than the client may have seen.
        """
        self._is_in_log = event_id != ""
        return super().convert(event_id, event)

    def response(self) -> dict[str, Any]:
        """Return the response so far, as a request without `stream` gets it."""
        turn = self._turn
        return {
            "id": response_id(turn),
            "object": "response",
            "created_at": turn.created_s,
            "status": self._status,
            "background": False,
            "conversation": {"id": turn.session_id},
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "model": turn.model,
            "output": [self._output[number] for number in sorted(self._output)],
            "parallel_tool_calls": True,
            "temperature": None,
            "tool_choice": "auto",
            "tools": [],
            "top_p": None,
            "usage": None,
            **self._fields,
        }

    def _write(self, kind: str, **members: Any) -> None:
        number, self._sequence = self._sequence, self._sequence + 1
        if number > self._turn.starting_after:
            self._frames.append(frame({"type": kind, "sequence_number": number, **members}, kind))

    def _write_begin(self) -> None:
        self._write("response.created", response=self.response())
        self._write("response.in_progress", response=self.response())

    def _write_open(self, part: Part) -> None:
        self._write("response.output_item.added", output_index=part.number, item=self._item(part, "in_progress"))
        at = self._at(part)
        if part.kind == "text":
            self._write("response.content_part.added", **at, content_index=0, part=_text_part(""))
        elif part.kind == "reasoning":
            summary = {"type": "summary_text", "text": ""}
            self._write("response.reasoning_summary_part.added", **at, summary_index=0, part=summary)

    def _write_delta(self, part: Part, delta: str) -> None:
        part.pieces.append(delta)
        at = self._at(part)
        if part.kind == "text":
            self._write("response.output_text.delta", **at, content_index=0, delta=delta, logprobs=[])
        elif part.kind == "reasoning":
            self._write("response.reasoning_summary_text.delta", **at, summary_index=0, delta=delta)
        else:
            self._write("response.function_call_arguments.delta", **at, delta=delta)

    def _write_close(self, part: Part) -> None:
        text, at = part.joined(), self._at(part)
        if part.kind == "text":
            self._write("response.output_text.done", **at, content_index=0, text=text, logprobs=[])
            self._write("response.content_part.done", **at, content_index=0, part=_text_part(text))
        elif part.kind == "reasoning":
            self._write("response.reasoning_summary_text.done", **at, summary_index=0, text=text)
            summary = {"type": "summary_text", "text": text}
            self._write("response.reasoning_summary_part.done", **at, summary_index=0, part=summary)
        else:
            self._write("response.function_call_arguments.done", **at, name=part.name, arguments=text)
        self._write_item_done(part, self._item(part, "completed" if part.is_whole else "incomplete"))

    def _write_result(self, result: Part, content: Any) -> None:
        item = {"type": "function_call_output", "id": f"fco_{self._turn.key}.{result.number}", "call_id": result.id}
        item |= {"status": "completed", "output": text_of(content)}
        self._write("response.output_item.added", output_index=result.number, item=item)
        self._write_item_done(result, item)

    def _write_item_done(self, part: Part, item: dict[str, Any]) -> None:
        self._output[part.number] = item
        self._write("response.output_item.done", output_index=part.number, item=item)

    def _write_data(self, name: str, data: Any) -> None:
        """Write nothing: the format has no such event."""

    def _write_end(self, end: End) -> None:
        self._fields = {"usage": _usage(end.usage)}
        self._status = {"done": "completed", "stopped": "incomplete"}.get(end.outcome, "failed")
        if self._status == "incomplete":
            is_known = end.reason in _INCOMPLETE
            self._fields["incomplete_details"] = {"reason": end.reason} if is_known else {}
            self._fields["metadata"] = {"reason": end.reason or end.outcome}
        elif self._status == "failed":
            self._fields["error"] = {"code": "server_error", "message": describe_failure(end)}
        if not self._is_in_log:
            self._sequence = max(self._sequence, self._turn.starting_after + 1)
        self._write(f"response.{self._status}", response=self.response())

    def _at(self, part: Part) -> dict[str, Any]:
        prefix = {"text": "msg", "reasoning": "rs"}.get(part.kind, "fc")
        return {"item_id": f"{prefix}_{self._turn.key}.{part.number}", "output_index": part.number}

    def _item(self, part: Part, status: str) -> dict[str, Any]:
        item: dict[str, Any] = {"id": self._at(part)["item_id"], "status": status}
        text = part.joined()
        if part.kind == "text":
            content = [] if part.is_open else [_text_part(text)]
            return item | {"type": "message", "role": "assistant", "content": content}
        if part.kind == "reasoning":
            return item | {
                "type": "reasoning",
                "summary": [] if part.is_open else [{"type": "summary_text", "text": text}],
            }
        return item | {"type": "function_call", "call_id": part.id, "name": part.name, "arguments": text}


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _usage(usage: Any) -> dict[str, Any] | None:
    """Return usage in the form of a response; None if it has no counts of tokens."""
    if not isinstance(usage, dict):
        return None
    counts = [usage.get(name, usage.get(older)) for name, older in _COUNTS]
    if not all(type(count) is int for count in counts):
        return None
    return {"input_tokens": counts[0], "output_tokens": counts[1], "total_tokens": sum(counts), **_NO_DETAILS}
