"""Files to replay."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.transcripts import LONG, chat, write


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "chats.jsonl", *(chat(f"chat-{number}") for number in range(20)))


@pytest.fixture
def long_file(tmp_path: Path) -> Path:
    """Ten conversations that need a summary, and one that does not."""
    return write(tmp_path / "long.jsonl", *(chat(f"long-{n}", LONG) for n in range(10)), chat("short"))
