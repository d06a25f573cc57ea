"""Servers that do not let everybody in."""

from __future__ import annotations

from pathlib import Path

import redis

from support.redis_server import RedisServer

PASSWORD = "p:a/s@s%?"


class GuardedServer(RedisServer):
    """Asks for a password; knows `app`, who may do what the tests do, and `reader`, who may not write."""

    socket_path: Path

    def let_nobody_in(self) -> None:
        with redis.Redis(port=self.port) as admin:
            admin.execute_command("ACL", "SETUSER", "app", "on", f">{PASSWORD}", "~*", "+@all")
            admin.execute_command("ACL", "SETUSER", "reader", "on", f">{PASSWORD}", "~*", "+@all", "-@write")
            admin.config_set("requirepass", PASSWORD)


class TlsServer(RedisServer):
    tls_port: int
