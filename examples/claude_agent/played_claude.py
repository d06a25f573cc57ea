#!/usr/bin/env python3
"""A program in place of Claude Code for examples: it speaks with the Claude Agent SDK, and asks no model.

It looks up the weather for each city of the question, then answers. Its history is the file that the SDK has restored.
"""

from __future__ import annotations

import json
import os
import re
import sys
import uuid
from pathlib import Path
from typing import Any

DEGREES = {"Oslo": 4, "Rome": 19, "Lima": 22}


def play(question: str, earlier: list[dict[str, Any]], session_id: str) -> list[dict[str, Any]]:
    """Return the entries of a transcript for a question: itself, the tools' calls and results, the answer."""
    cities = [city for city in DEGREES if city in question]
    calls = [
        {"type": "tool_use", "id": f"{len(earlier)}-{city}", "name": "look_up_weather", "input": {"city": city}}
        for city in cities
    ]
    found = [f"{DEGREES[city]} degrees in {city}" for city in cities]
    results = [
        {"type": "tool_result", "tool_use_id": call["id"], "content": text}
        for call, text in zip(calls, found, strict=True)
    ]
    asked = sum(isinstance(entry["message"]["content"], str) for entry in earlier)
    answer = f"Question {asked + 1}: {', '.join(found) or 'no city'}."
    turns: list[tuple[str, Any]] = [("user", question)]
    turns += [("assistant", calls), ("user", results)] if cities else []
    turns += [("assistant", [{"type": "text", "text": answer}])]
    entries: list[dict[str, Any]] = []
    parent = earlier[-1]["uuid"] if earlier else None
    for role, content in turns:
        message = {"role": role, "content": content}
        entry = {"type": role, "uuid": str(uuid.uuid4()), "parentUuid": parent, "sessionId": session_id}
        entries.append(entry | {"timestamp": "2026-01-02T09:00:00.000Z", "message": message})
        parent = entry["uuid"]
    return entries


def say(frame: dict[str, Any]) -> None:
    print(json.dumps(frame), flush=True)


def main() -> None:
    words = " ".join(sys.argv[1:])
    session_id = re.findall(r"--(?:resume|session-id)[= ](\S+)", words)[0]
    config = Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude")
    transcript = config / "projects" / os.environ["PLAYED_PROJECT"] / f"{session_id}.jsonl"
    earlier = [json.loads(line) for line in transcript.read_text().splitlines()] if transcript.exists() else []
    for line in sys.stdin:
        frame = json.loads(line)
        if frame["type"] == "control_request":
            answer = {"subtype": "success", "request_id": frame["request_id"], "response": {}}
            say({"type": "control_response", "response": answer})
        elif frame["type"] == "user":
            entries = play(frame["message"]["content"], earlier, session_id)
            earlier += entries
            # Claude Code tells the SDK what it has written to its own file, and the SDK passes it to the store.
            say({"type": "transcript_mirror", "filePath": str(transcript), "entries": entries})
            last = entries[-1]["message"]
            say({"type": "assistant", "message": last | {"model": "played"}, "session_id": session_id})
            counts = {"duration_ms": 1, "duration_api_ms": 1, "num_turns": 1, "is_error": False}
            say({"type": "result", "subtype": "success", "session_id": session_id, **counts})


if __name__ == "__main__":
    main()
