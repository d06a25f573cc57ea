"""Options that several commands share, and short forms for declaring one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter, validators


def flag(help: str, *names: str) -> Parameter:
    """Declare an option without a value, which has no negative form."""
    return Parameter(name=names, negative=(), show_default=False, help=help)


def option(help: str, env_var: str | None = None, name: str | None = None) -> Parameter:
    """Declare an argument or an option with a value."""
    return Parameter(name=name, help=help, env_var=env_var)


def within(least: float, most: float | None, help: str, env_var: str | None = None) -> Parameter:
    """Declare a number within bounds; `None` means no upper bound."""
    return Parameter(validator=validators.Number(gte=least, lte=most), help=help, env_var=env_var)


_URL_HELP = (
    "Address of Redis: `redis://[user:password@]host:port/db`, `rediss://…`, `valkey://…`, `unix://…`, "
    "`redis+cluster://host:port,host:port`, `redis+sentinel://host:port,host:port/service/db`."
)
Url = Annotated[str | None, option(_URL_HELP)]
_NAMESPACE_HELP = "The tenant, isolated from all other namespaces."
Namespace = Annotated[str, option(_NAMESPACE_HELP, "REDISMEM_NAMESPACE")]
# Of a command that appends messages of its own: they must not reach the namespace of the environment.
OwnNamespace = Annotated[str, option(_NAMESPACE_HELP)]
Yes = Annotated[bool, flag("Do not ask for confirmation.", "--yes", "-y")]
AsJson = Annotated[bool, flag("Print one JSON document on stdout and nothing else.", "--json")]
JsonLogs = Annotated[bool, flag("Log as JSON.", "--json")]
EveryS = Annotated[float | None, within(0.01, 3_600, "With --watch: seconds between polls. [default: 1]")]
DryRun = Annotated[bool, flag("Read and compare; write nothing.")]
Full = Annotated[bool, flag("Print whole messages instead of their beginnings.")]
Redact = Annotated[bool, flag("Leave out the texts of messages and summaries.")]


@dataclass(frozen=True, slots=True)
class Target:
    """The namespace that a command works on, and the form of its output."""

    url: Url = None
    namespace: Namespace = "default"
    as_json: AsJson = False


On = Annotated[Target, Parameter(name="*")]
DEFAULT = Target()
