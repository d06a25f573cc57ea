"""`redismem settings`: every setting, its variable, the value in force, where it comes from, and what it means."""

from __future__ import annotations

from typing import Any

from redismem.cli.place import safe_url
from redismem.cli.terminal import AsJson, console, print_json, printable
from redismem.settings.environment import PREFIX, Look, look
from redismem.settings.settings import Settings

_SECRETS = ("model_api_key", "embed_api_key")
_ADDRESSES = ("url", "model_base_url", "embed_base_url")


async def settings(*, as_json: AsJson = False) -> int:
    """List every setting: its variable, the value in force, where it comes from, and what it means.

    In force is what a process with this environment takes, if nothing is given in code. Of a secret it says whether
    it is set; of an address neither user, password nor options.
    """
    seen, made = look(Settings), Settings()
    rows = [
        {
            "name": name,
            "variable": PREFIX + name.upper(),
            "value": _shown(name, getattr(made, name)),
            "source": _source(name, getattr(made, name), seen),
            "meaning": field.description,
        }
        for name, field in Settings.model_fields.items()
    ]
    if as_json:
        print_json({"settings": rows})
    else:
        _print(rows)
    return 0


def _shown(name: str, value: Any) -> Any:
    """The value, as far as everybody may see it."""
    if name in _SECRETS:
        return "set" if value is not None and value.get_secret_value() else "not set"
    if not value or name not in _ADDRESSES:
        return value
    return safe_url(value) if "://" in value else "the given URL"


def _source(name: str, value: Any, seen: Look) -> str:
    """Environment, default, or why it is neither."""
    case = {each.variable: each.case for each in seen.complaints}.get(PREFIX + name.upper())
    if case == "kept":
        return "the variable cannot be used: nothing is removed"
    if case == "default":
        return "the variable cannot be used: default"
    if name in seen.given:
        return "environment"
    # A threshold rises over a recent_limit, and a recent_limit falls with a threshold.
    return "default" if value == Settings.model_fields[name].default else "follows another setting"


def _print(rows: list[dict[str, Any]]) -> None:
    from rich.text import Text

    out = console()
    for row in rows:
        value = "not set" if row["value"] is None else printable(str(row["value"]))
        style = "" if row["source"] == "default" else "bold"
        out.print(
            Text.assemble((row["variable"], style), f" = {value}  ", (f"({row['source']})", "dim")), soft_wrap=True
        )
        out.print(Text(f"    {row['meaning']}", "dim"))
