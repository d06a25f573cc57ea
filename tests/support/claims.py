"""Read what the README says that its checks print."""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def printed_by(command: str) -> re.Pattern[str]:
    """Return a pattern of what the README shows as printed by a check. Each number stands for any number."""
    (shown,) = re.findall(rf"Check:\s+`{re.escape(command)}[^`]*`\s+prints\s+`([^`]+)`", README.read_text())
    return re.compile("".join(r"\d[\d,.]*" if part[:1].isdigit() else re.escape(part) for part in _parts(shown)))


def _parts(text: str) -> list[str]:
    return re.findall(r"\d[\d,]*(?:\.\d+)?|\D+", text)
