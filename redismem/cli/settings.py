"""`redismem list settings`: list every setting with its variable, value, source and meaning."""

from __future__ import annotations

from typing import Any

from redismem.cli.options import AsJson
from redismem.cli.place import safe_url
from redismem.cli.terminal import console, print_json
from redismem.inspection.figures import printable
from redismem.settings.environment import values_from_environment
from redismem.settings.names import PREFIX
from redismem.settings.settings import Settings

_SECRETS = ("model_api_key", "embed_api_key")
# Someone may have given the password instead of the file's path.
_SET_OR_NOT = (*_SECRETS, "password_file")
_ADDRESSES = ("url", "model_base_url", "embed_base_url")


async def list_settings(*, as_json: AsJson = False) -> int:
    """List every setting: its variable, the value in use, its source and its meaning.

    A process with this environment uses the shown value, unless its code passes another. Secrets show only as set or
    not set; addresses show without user, password and options.
    """
    values = Settings()
    given = values_from_environment(Settings.model_fields)
    rows = [
        {
            "name": name,
            "variable": PREFIX + name.upper(),
            "value": _public_value(name, getattr(values, name)),
            "source": _source(name, getattr(values, name), name in given),
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


def _source(name: str, value: Any, is_given: bool) -> str:
    """Return the source of a value."""
    if is_given:
        return "environment"
    # The default recent_limit falls below a given threshold.
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
