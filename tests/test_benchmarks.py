"""Each benchmark runs, and prints the ratios it is there for. How large they are, no test decides."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.timeout(300)


def run(*words: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("REDISMEM_")}
    done = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_turns_gives_the_ratios_to_both_idioms_and_the_servers_cost() -> None:
    printed = run("benchmarks.turns", "--quick")
    for what in ("machine", "server", "python", "versions", "command"):
        assert re.search(rf"^{what} +\S", printed, re.MULTILINE)
    for concurrency in (1, 64):
        assert f"{concurrency} concurrent sessions" in printed
    # turns/s, client CPU, server CPU, round trips, bytes a message
    for other in ("careful", "bare"):
        assert len(re.findall(rf"redismem / redis-py, {other}(?: +x \d+\.\d\d){{5}}$", printed, re.MULTILINE)) == 2
    assert re.search(
        r"append_and_read to bare RPUSH \+ LRANGE: x \d+\.\d\d one write a call, x \d+\.\d\d blast", printed
    )


@pytest.fixture
def transcripts(tmp_path: Path) -> Path:
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "Wo ist mein Päckchen?"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "a"}]},
    ]
    file = tmp_path / "two.jsonl"
    file.write_text("".join(json.dumps({"session_id": f"s{n}", "messages": messages}) + "\n" for n in range(2)))
    return file


def test_memory_weighs_a_file(transcripts: Path) -> None:
    found = json.loads(run("benchmarks.memory", "--json", "--file", str(transcripts)))
    user, assistant = '{"role":"user","content":"Wo ist mein Päckchen?"}', '{"role":"assistant","content":null,'
    raw = 2 * len((user + assistant + '"tool_calls":[{"id":"a"}]}').encode())
    assert (found["sessions"], found["messages"], found["raw_bytes"]) == (2, 4, raw)
    assert found["contents_bytes"] == 2 * len("Wo ist mein Päckchen?".encode())
    assert all(found["keys_bytes"][kind] > 0 for kind in ("messages", "state", "indexes"))
    assert sum(found["keys_bytes"].values()) <= found["used_memory_bytes"]
    assert found["ratio"] == found["used_memory_bytes"] / raw


def test_memory_prints_its_ratio() -> None:
    """Of the transcripts, or of synthetic conversations where they are not; it says which."""
    printed = run("benchmarks.memory", "--quick")
    assert re.search(r"used_memory to raw text: x \d+\.\d{3}; wanted: at most x 1\.5", printed)
    assert re.search(r"^texts +(airline\.jsonl|synthetic conversations)", printed, re.MULTILINE)
