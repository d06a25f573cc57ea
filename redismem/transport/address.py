"""Where a Redis is and how to be let in: a URL, as redis-py reads it, into what a socket needs.

`redis://user:password@host:port/db`, `rediss://` for TLS, `unix://user:password@/path.sock`. Options behind the `?`:
db, username, password, client_name, protocol (2 or 3) and, for TLS, ssl_ca_certs, ssl_ca_path, ssl_ca_data,
ssl_certfile, ssl_keyfile, ssl_password, ssl_cert_reqs (required, optional, none), ssl_check_hostname.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Any

from redis.connection import SSLConnection, parse_url

from redismem.errors import InvalidSettings
from redismem.protocol.call import Command

_VERIFY = {"required": ssl.CERT_REQUIRED, "optional": ssl.CERT_OPTIONAL, "none": ssl.CERT_NONE}


@dataclass(frozen=True, slots=True)
class Address:
    """One Redis node. `path` is a unix socket's, and then there is no host."""

    host: str = "localhost"
    port: int = 6379
    path: str | None = None
    tls: ssl.SSLContext | None = None
    greeting: tuple[Command, ...] = field(default=(), repr=False)
    """What is said first on a connection, in one write. Holds the password."""

    @classmethod
    def from_url(cls, url: str) -> Address:
        """Raises InvalidSettings, which names the option but neither its value nor the URL."""
        try:
            options: dict[str, Any] = parse_url(url)  # type: ignore[no-untyped-call]
        except ValueError:  # its text repeats parts of the URL, which may hold a password
            raise InvalidSettings("the Redis URL is not usable: its scheme, port or an option is not one") from None
        secure = options.pop("connection_class", None) is SSLConnection
        greeting = _greeting(options)
        where = {name: options.pop(name) for name in ("host", "port", "path") if name in options}
        tls = _tls(options) if secure else None
        if options:
            raise InvalidSettings(f"the Redis URL has options that are not known: {', '.join(sorted(options))}")
        return cls(**where, tls=tls, greeting=greeting)


def _greeting(options: dict[str, Any]) -> tuple[Command, ...]:
    """HELLO or AUTH, CLIENT SETNAME, SELECT: what of it is needed. Takes its options out."""
    username, password = options.pop("username", None), options.pop("password", None)
    protocol, name, db = options.pop("protocol", 2), options.pop("client_name", None), options.pop("db", 0)
    if protocol not in (2, 3):
        raise InvalidSettings(f"the Redis URL's protocol is 2 or 3, not {protocol}")
    said: list[Command] = []
    if protocol == 3:
        login = ("AUTH", username or "default", password) if password is not None else ()
        said.append(("HELLO", "3", *login))
    elif password is not None:
        said.append(("AUTH", username, password) if username else ("AUTH", password))
    if name is not None:
        said.append(("CLIENT", "SETNAME", name))
    if db:
        said.append(("SELECT", db))
    return tuple(said)


def _tls(options: dict[str, Any]) -> ssl.SSLContext:
    """Checks certificate and host name unless the URL says otherwise. Takes its options out."""

    def take(name: str, default: Any = None) -> Any:
        return options.pop(f"ssl_{name}", default)

    authorities = {"cafile": take("ca_certs"), "capath": take("ca_path"), "cadata": take("ca_data")}
    certificate, key, password = take("certfile"), take("keyfile"), take("password")
    required, check_hostname = take("cert_reqs", "required"), take("check_hostname", True)
    if required not in _VERIFY:
        raise InvalidSettings("the Redis URL's ssl_cert_reqs is required, optional or none")
    try:
        context = ssl.create_default_context(**authorities)
        context.check_hostname = check_hostname and required != "none"
        context.verify_mode = _VERIFY[required]
        if certificate:
            context.load_cert_chain(certificate, key, password)
    except OSError as refused:
        raise InvalidSettings(f"the certificates that the Redis URL names cannot be used: {refused}") from None
    return context
