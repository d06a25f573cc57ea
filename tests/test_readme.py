"""The README's first turn runs as it stands, and the table of settings in docs/ is the settings'."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from support.redis_server import RedisServer

from redismem import Settings
from redismem.blocking import Memory

ROOT = Path(__file__).parents[1]


def table() -> str:
    lines = ["| variable | default | meaning |", "|---|---|---|"]
    for name, field in Settings.model_fields.items():
        default = "" if field.default is None else f"`{field.default}`"
        lines.append(f"| `REDISMEM_{name.upper()}` | {default} | {field.description} |")
    return "\n".join(lines)


def test_the_table_of_settings_is_complete() -> None:
    page = (ROOT / "docs" / "settings.md").read_text()
    shown = page.partition("<!-- settings -->\n")[2].partition("\n<!-- /settings -->")[0]
    assert shown == table(), f"put this into docs/settings.md:\n{table()}"


def test_the_first_turn_works_as_it_stands(redis_server: RedisServer) -> None:
    first = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[0]
    asked: list[list[dict[str, Any]]] = []

    def call_my_model(messages: list[dict[str, Any]]) -> str:
        asked.append(messages)
        return "On its way."

    exec(first.replace("redis://127.0.0.1:6379/0", redis_server.url), {"call_my_model": call_my_model})
    assert asked == [[{"role": "user", "content": "Where is my order?"}]]
    with Memory.connect(redis_server.url, namespace="shop") as memory:
        session = memory.session("user-42")
        assert [message.content for message in session.messages()] == ["Where is my order?", "On its way."]
        assert session.params() == {"order_id": "O-1"}
        session.clear()
