"""`redismem settings`: list every setting with its variable, value, source and meaning."""

from __future__ import annotations

from typing import Any

from redismem.cli.place import safe_url
from redismem.cli.terminal import AsJson, console, print_json
from redismem.inspection.figures import printable
from redismem.settings.environment import Look, look
from redismem.settings.names import PREFIX
from redismem.settings.settings import Settings

_SECRETS = ("model_api_key", "embed_api_key")
# Someone may have given the password instead of the file's path.
_SET_OR_NOT = (*_SECRETS, "password_file")
_ADDRESSES = ("url", "model_base_url", "embed_base_url")


async def settings(*, as_json: AsJson = False) -> int:
    """List every setting: its variable, the value in use, its source and its meaning.

    A process with this environment uses the shown value, unless its code passes another. Secrets show only as set or
    not set; addresses show without user, password and options.
    """
    environment, values = look(Settings), Settings()
    rows = [
        {
            "name": name,
            "variable": PREFIX + name.upper(),
            "value": _public_value(name, getattr(values, name)),
            "source": _source(name, getattr(values, name), environment),
            "meaning": field.description,
        }
        for name, field in Settings.model_fields.items()
    ]
    if as_json:
        print_json({"settings": rows})
    else:
        _print(rows)
    return 0


def _public_value(name: str, value: Any) -> Any:
    """Return the value without secrets."""
    if name in _SET_OR_NOT:
        text = value.get_secret_value() if name in _SECRETS and value is not None else value
        return "set" if text else "not set"
    if not value or name not in _ADDRESSES:
        return value
    return safe_url(value) if "://" in value else "the given URL"


def _source(name: str, value: Any, environment: Look) -> str:
    """Return the source of a value: the environment, the default, or the reason why another value is used."""
    case = {each.variable: each.case for each in environment.complaints}.get(PREFIX + name.upper())
    if case == "kept":
        return "the variable is invalid: nothing is evicted"
    if case == "default":
        return "the variable is invalid: default"
    if name in environment.given:
        return "environment"
    # The default threshold rises above a given recent_limit; the default recent_limit falls below a given threshold.
    return "default" if value == Settings.model_fields[name].default else "derived from another setting"


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
