"""Connect to a host that may have several addresses, some of which may not answer."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from typing import Any

from redismem.transport.url import Address


def in_turn(found: Sequence[tuple[Any, ...]], failed_count: int) -> list[str]:
    """Return the addresses that getaddrinfo has found, beginning with another one after each failed attempt.

    The first address would otherwise get the whole time of each attempt, even if nothing answers there.
    """
    addresses = list(dict.fromkeys(str(info[4][0]) for info in found))
    at = failed_count % len(addresses)
    return [*addresses[at:], *addresses[:at]]


async def dial(connection: asyncio.Protocol, address: Address, failed_count: int) -> None:
    """Connect to one of the addresses of a host. Raises OSError."""
    loop, hosts = asyncio.get_running_loop(), [address.host]
    if failed_count:
        hosts = in_turn(await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM), failed_count)
    name = None if address.tls is None else address.host
    for host in hosts[:-1]:
        try:
            await loop.create_connection(lambda: connection, host, address.port, ssl=address.tls, server_hostname=name)
            return
        except ConnectionError:  # refused, so the connection is as new
            continue
    await loop.create_connection(lambda: connection, hosts[-1], address.port, ssl=address.tls, server_hostname=name)
