"""Options that several commands share, and short forms for declaring one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter, validators

from redismem.cli.terminal import AsJson, Namespace, Url


@dataclass(frozen=True, slots=True)
class Target:
    """The namespace that a command works on, and the form of its output."""

    url: Url = None
    namespace: Namespace = "default"
    as_json: AsJson = False


On = Annotated[Target, Parameter(name="*")]
DEFAULT = Target()


def flag(help: str, name: str | None = None) -> Parameter:
    """Declare an option without a value, which has no negative form."""
    return Parameter(name=name, negative=(), show_default=False, help=help)


def told(help: str, env_var: str | None = None, name: str | None = None) -> Parameter:
    """Declare an argument or an option with a value."""
    return Parameter(name=name, help=help, env_var=env_var)


def within(least: float, most: float | None, help: str, env_var: str | None = None) -> Parameter:
    """Declare a number within bounds; `None` means no upper bound."""
    return Parameter(validator=validators.Number(gte=least, lte=most), help=help, env_var=env_var)


JsonLogs = Annotated[bool, flag("Log as JSON.", "--json")]
EveryS = Annotated[float | None, within(0.01, 3_600, "With --watch: seconds between polls. [default: 1]")]
DryRun = Annotated[bool, flag("Read and compare; write nothing.")]
Full = Annotated[bool, flag("Print whole messages instead of their beginnings.")]
Redact = Annotated[bool, flag("Leave out the texts of messages and summaries.")]
