"""Events of turns for the tests of streams, their frames, and what each format's clients demand of a stream."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from redismem.formats.streams.opening import open_stream
from redismem.formats.streams.stream import StreamTurn

Event = dict[str, Any]
TURN = StreamTurn("chat-1", "turn-1", "7-ab12cd34", created_s=1_700_000_000)
KEY = TURN.key
QUESTION: Event = {"type": "message", "first_seq": 1, "last_seq": 1}


def text(delta: str) -> Event:
    return {"type": "text", "delta": delta}


def reasoning(delta: str) -> Event:
    return {"type": "reasoning", "delta": delta}


def call(id: str, delta: str = "", name: str = "weather", **more: Any) -> Event:
    return {"type": "tool_call", "id": id, "name": name, "delta": delta, **more}


def done(id: str) -> Event:
    return {"type": "tool_call", "id": id, "done": True}


def result(id: str, content: Any) -> Event:
    return {"type": "tool_result", "id": id, "content": content}


def end(outcome: str = "done", reason: str = "", usage: Any = None) -> Event:
    return {"type": "end", "outcome": outcome, "reason": reason, "seq": 2, "usage": usage}


WEATHER = [
    QUESTION,
    reasoning("They ask "),
    reasoning("for rain."),
    text("Let me "),
    text("look."),
    call("c1", '{"city":'),
    call("c1", '"Bergen"}'),
    done("c1"),
    result("c1", {"rain": True}),
    {"type": "data", "name": "place", "data": {"lat": 60.4}},
    {"type": "notice", "code": "slow", "text": "The service is slow."},
    text("It rains."),
]
"""A turn of two steps, without its end."""


def with_ids(events: Iterable[Event]) -> list[tuple[str, Event]]:
    """Return the events with the ids that they have in a log."""
    listed, offset = [], 0
    for event in events:
        offset += len(json.dumps(event, separators=(",", ":"))) + 1
        listed.append((f"{KEY}.{offset}", event))
    return listed


def convert_all(format: str, events: Iterable[Event], turn: StreamTurn = TURN) -> bytes:
    """Return the whole stream of a turn's events."""
    stream = open_stream(format, turn)
    return b"".join([stream.convert(*each) for each in with_ids(events)] + [stream.close()])


def parse_frames(stream: bytes) -> list[dict[str, str]]:
    """Parse server-sent events as strictly as any client: one line for each field, and LF alone as the line break."""
    content = stream.decode()
    assert not content or content.endswith("\n\n")
    assert len(content.splitlines()) == content.count("\n"), "a line break that some readers of lines do not know"
    frames = []
    for block in content.split("\n\n")[:-1]:
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        assert fields.keys() <= {"id", "event", "data"}
        frames.append(fields)
    return frames


def parse_data(stream: bytes) -> list[dict[str, Any]]:
    """Return the JSON of each event; `[DONE]` is left out."""
    return [json.loads(fields["data"]) for fields in parse_frames(stream) if fields["data"] != "[DONE]"]


def check_ai(stream: bytes) -> None:
    """Refuse what `processUIMessageStream` throws an error at, and what is left open."""
    chunks = parse_data(stream)
    assert chunks[0] == {"type": "start", "messageId": KEY}
    assert chunks[-1]["type"] == "finish"
    assert stream.endswith(b"data: [DONE]\n\n")
    open_ids: set[tuple[str, str]] = set()
    seen: set[tuple[str, str]] = set()
    steps = 0
    for chunk in chunks[1:-1]:
        kind = chunk["type"]
        if kind.startswith("data-") or kind in ("error", "abort"):
            continue
        if kind in ("start-step", "finish-step"):
            steps += 1 if kind == "start-step" else -1
            assert steps in (0, 1)
            assert not open_ids
            continue
        part, _, what = kind.rpartition("-")
        name = (part.partition("-")[0], str(chunk.get("id") or chunk.get("toolCallId")))
        if kind == "tool-output-available":
            assert name in seen - open_ids
        elif what == "start":
            assert name not in seen
            assert steps == 1
            seen.add(name)
            open_ids.add(name)
        elif what == "delta":
            assert name in open_ids
        else:
            assert kind in ("text-end", "reasoning-end", "tool-input-available", "tool-input-error")
            open_ids.remove(name)
    assert not open_ids
    assert not steps


def check_ag_ui(stream: bytes) -> None:
    """Refuse what `verifyEvents` refuses, ids that are used twice, and what is left open."""
    events = parse_data(stream)
    assert events[0] == {"type": "RUN_STARTED", "threadId": "chat-1", "runId": "turn-1"}
    assert events[-1]["type"] in ("RUN_FINISHED", "RUN_ERROR")
    open_ids: set[tuple[str, str]] = set()
    seen: set[tuple[str, str]] = set()
    for event in events[1:-1]:
        kind, what = event["type"].rsplit("_", 1) if "_" in event["type"] else (event["type"], "")
        if kind == "CUSTOM":
            assert isinstance(event["name"], str)
            assert "value" in event
            continue
        name = (kind, event["toolCallId"] if kind == "TOOL_CALL" and what != "RESULT" else event["messageId"])
        if what == "RESULT":
            assert isinstance(event["content"], str)
            assert ("TOOL_CALL", event["toolCallId"]) not in open_ids
            name = ("TEXT_MESSAGE", event["messageId"])
            assert name not in seen
            seen.add(name)
        elif what == "START":
            assert name not in seen
            seen.add(name)
            open_ids.add(name)
        elif what == "END":
            open_ids.remove(name)
        else:
            assert what in ("CONTENT", "ARGS")
            assert event["delta"]
            assert name in open_ids
    assert not open_ids


def check_openai(stream: bytes) -> None:
    """Rebuild the response from its events, as the SDK does, and compare it with the one at the end."""
    events = parse_data(stream)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [fields["event"] for fields in parse_frames(stream)] == [event["type"] for event in events]
    assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
    assert events[-1]["type"] in ("response.completed", "response.incomplete", "response.failed")
    output: list[dict[str, Any]] = []
    finished: dict[int, Mapping[str, Any]] = {}
    for event in events[2:-1]:
        index = event["output_index"]
        kind = event["type"].removeprefix("response.")
        if kind == "output_item.added":
            assert index == len(output)
            output.append({"id": event["item"]["id"], "text": ""})
            continue
        assert index not in finished
        item = output[index]
        if kind == "output_item.done":
            finished[index] = event["item"]
            assert event["item"]["id"] == item["id"]
            continue
        assert event["item_id"] == item["id"]
        if kind.endswith(".delta"):
            item["text"] += event["delta"]
        elif kind.endswith(("text.done", "arguments.done")):
            assert event.get("text", event.get("arguments")) == item["text"]
    ids = [item["id"] for item in output]
    assert len(set(ids)) == len(ids)
    assert sorted(finished) == list(range(len(output)))
    response = events[-1]["response"]
    assert response["output"] == [finished[index] for index in range(len(output))]
    assert response["id"] == events[0]["response"]["id"]
    assert f"response.{response['status']}" == events[-1]["type"]


def check_own(stream: bytes) -> None:
    """Refuse events whose fields disagree, and an end that is not the last."""
    frames = parse_frames(stream)
    assert all(fields["event"] == json.loads(fields["data"])["type"] for fields in frames)
    assert [fields["event"] for fields in frames].index("end") == len(frames) - 1


CHECKS = {"events": check_own, "ai": check_ai, "ag-ui": check_ag_ui, "openai": check_openai}
