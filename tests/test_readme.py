"""The README's table of settings is the settings'."""

from __future__ import annotations

from pathlib import Path

from redismem import Settings

README = Path(__file__).parents[1] / "README.md"


def table() -> str:
    lines = ["| variable | default | meaning |", "|---|---|---|"]
    for name, field in Settings.model_fields.items():
        default = "" if field.default is None else f"`{field.default}`"
        lines.append(f"| `REDISMEM_{name.upper()}` | {default} | {field.description} |")
    return "\n".join(lines)


def test_the_table_of_settings_is_complete() -> None:
    shown = README.read_text().partition("<!-- settings -->\n")[2].partition("\n<!-- /settings -->")[0]
    assert shown == table(), f"put this into the README:\n{table()}"
