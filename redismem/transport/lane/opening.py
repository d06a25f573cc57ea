"""Open a connection of a lane: connect, secure it, and greet the server."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from redismem.protocol.server_errors import ConnectionLost, ServerError
from redismem.transport import tls
from redismem.transport.base import reason_of
from redismem.transport.lane.connection import Connection
from redismem.transport.url import Address

AnyConnection = TypeVar("AnyConnection", bound=Connection)


async def connect(connection: AnyConnection, address: Address, timeout_s: float) -> AnyConnection:
    """Connect a new connection, and return it once the server has accepted it. A failure loses the connection.

    Asks once more for a login that the server does not accept.

    Raises:
        ServerError: The server refused the connection.
        ConnectionLost: No reply came, TLS failed for a lasting reason, or there is no login.
        OSError: The connection failed.
    """
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout_s) as limit:
            if address.path is not None:
                await loop.create_unix_connection(lambda: connection, address.path)
            else:
                name = None if address.tls is None else address.host
                await loop.create_connection(
                    lambda: connection, address.host, address.port, ssl=address.tls, server_hostname=name
                )
            await _greet(connection, address, limit)
    except BaseException as failure:
        is_silent = isinstance(failure, TimeoutError) and address.tls is not None and not connection.is_open
        connection.lose(reason_of(failure))
        if is_silent:
            raise ConnectionLost(tls.SILENCE, sent=False) from None
        raise tls.lasting_failure(connection.error or failure) or failure from None
    return connection


async def _greet(connection: Connection, address: Address, limit: asyncio.Timeout) -> None:
    """Send the greeting with the current login, and once more with a new one if the server does not accept it.

    The question for a login has a time limit of its own. A server that is down is not connected, and costs no question.
    """
    if (asker := address.asker) is None:
        await connection.greet(address.opening())
        return
    clock = asyncio.get_running_loop().time
    for may_repeat in (True, False):
        left_s = (limit.when() or 0.0) - clock()
        limit.reschedule(None)
        login = await asker.login()
        limit.reschedule(clock() + left_s)
        try:
            await connection.greet(address.opening(login))
            return
        except ServerError as refused:
            if refused.word != "WRONGPASS" or not may_repeat:
                raise
