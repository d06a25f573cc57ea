"""`redismem key`: create a key for a server."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from redismem.cli.options import Namespace, flag

Scopes = Annotated[tuple[str, ...], flag("read, write or admin; repeatable. [default: read and write]")]
OwnerOfKey = Annotated[str | None, Parameter(help="The key reaches the sessions of this owner alone.")]


async def key(
    name: Annotated[str, Parameter(help="The name of the key in logs and limits.")],
    /,
    *,
    namespace: Namespace = "default",
    scope: Scopes = ("read", "write"),
    owner: OwnerOfKey = None,
) -> int:
    """Create a key for a server; the key is shown only once.

    Prints the key, and below it the line for the list of keys.
    """
    from redismem.web.access import new_key

    secret, line = new_key(name, namespace, scope, owner)
    print(secret)
    print(line)
    return 0
