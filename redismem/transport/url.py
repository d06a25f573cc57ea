"""Parse a Redis URL in the form of redis-py into the address and greeting of a node.

`redis://user:password@host:port/db`, `rediss://` for TLS, `unix://user:password@/path.sock`; `valkey://` and
`valkeys://` equal the first two. Options after the `?`: db, username, password, client_name, protocol (2 or 3),
socket_keepalive (always on) and, for TLS, ssl_ca_certs, ssl_ca_path, ssl_ca_data, ssl_certfile, ssl_keyfile,
ssl_password, ssl_cert_reqs (required, optional, none), ssl_check_hostname, ssl_ciphers, ssl_min_version. An unknown
option, or an option without effect, raises an error that names the option.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from redismem.errors import InvalidSettings
from redismem.protocol.call import Command
from redismem.transport.credentials import Asker, Login

_VERIFY = {"required": ssl.CERT_REQUIRED, "optional": ssl.CERT_OPTIONAL, "none": ssl.CERT_NONE}
_SECURE = {"redis": False, "valkey": False, "rediss": True, "valkeys": True, "unix": False}
_TRUE, _FALSE = ("true", "yes", "t", "y", "1"), ("false", "no", "f", "n", "0")
_TLS_VERSIONS = {str(int(version)): version for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)} | {
    "TLSv1_2": ssl.TLSVersion.TLSv1_2,
    "TLSv1_3": ssl.TLSVersion.TLSv1_3,
}
_ENCODE = "; percent-encode / ? # and @ within user and password: %2F %3F %23 %40"


@dataclass(frozen=True, slots=True)
class Address:
    """One Redis node. `path` is the path of a unix socket, which has no host."""

    host: str = "localhost"
    port: int = 6379
    path: str | None = None
    tls: ssl.SSLContext | None = None
    greeting: tuple[Command, ...] = field(default=(), repr=False)
    """The first commands on a connection, in one write. They contain the password of the URL."""
    asker: Asker | None = field(default=None, repr=False)
    """Asks for user and password before each greeting, if they are not in the URL."""
    username: str | None = None
    """The user in the URL, for an asker that names none."""

    @property
    def place(self) -> str:
        """Host and port, or the path of the socket. It contains no password, so it may be logged."""
        if self.path is not None:
            return self.path
        return place_at(self.host, self.port)

    def opening(self, login: Login | None = None) -> tuple[Command, ...]:
        """Return the greeting to send, with this login if there is one.

        Over TLS it is at least a PING, whose reply shows that the server accepts the client's certificate.
        """
        if login is not None:
            username, password = login
            return _with_login(self.greeting, self.username if username is None else username, password)
        return self.greeting or ((("PING",),) if self.tls is not None else ())

    @classmethod
    def from_url(cls, url: str, asker: Asker | None = None) -> Address:
        """Parse a URL. With an asker, the URL may contain no password.

        Raises:
            InvalidSettings: The URL cannot be used. The error names the option, but quotes neither its value nor the
                URL.
        """
        try:
            return cls._from_url(url, asker)
        except InvalidSettings as refused:
            # An @ this late belongs to a user or password that was not percent-encoded.
            _, _, rest = url.partition("://")
            hint = _ENCODE if re.search("[/?#].*@", rest, re.DOTALL) else ""
            raise InvalidSettings(f"{refused}{hint}") from None

    @classmethod
    def _from_url(cls, url: str, asker: Asker | None) -> Address:
        try:
            parts = urlsplit(url)
            where = _where(parts)
        except ValueError:  # its text quotes parts of the URL, which may contain a password
            raise InvalidSettings(f"the Redis URL is not usable: {_no_place(url)}") from None
        options = _options(parts)
        if asker is not None and "password" in options:
            raise InvalidSettings("the Redis URL has a password, and credentials or the password file too: remove one")
        username = options.pop("username", None) if asker is not None else None
        greeting = _greeting(options)
        secure = _SECURE[parts.scheme]
        _flag(options, "socket_keepalive", True, only=True)
        tls = _tls(options) if secure else None
        if options:
            raise _unknown_options(parts, sorted(options), secure=secure)
        return cls(**where, tls=tls, greeting=greeting, asker=asker, username=username)


def place_at(host: str, port: int) -> str:
    """Return host and port in the form of a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _where(parts: SplitResult) -> dict[str, Any]:
    """Return the host and port, or the path. Raises ValueError if they are not valid."""
    if parts.scheme not in _SECURE or parts.fragment:
        raise ValueError
    if parts.scheme == "unix":
        if parts.hostname or not parts.path:
            raise ValueError
        return {"path": unquote(parts.path)}
    where = {"host": unquote(parts.hostname) if parts.hostname else None, "port": parts.port}
    return {name: value for name, value in where.items() if value is not None}


def _no_place(url: str) -> str:
    """Describe the fault in the host and port of a URL, without quoting any part of the URL."""
    hosts = url.partition("://")[2].partition("/")[0].rpartition("@")[2]
    if "," in hosts:
        return "it names several hosts, which only redis+cluster:// and redis+sentinel:// accept"
    if ":" in hosts.rpartition("]")[2]:
        return "its port is not a number up to 65535"
    return "its scheme, host or port is not valid"


def _options(parts: SplitResult) -> dict[str, str]:
    """Return all options: after the `?`, and user, password and database before it. Raises InvalidSettings."""
    login = {"username": parts.username, "password": parts.password}
    options = {name: unquote(value) for name, value in login.items() if value}
    path = "" if parts.scheme == "unix" else unquote(parts.path).strip("/")
    if path:
        options["db"] = path
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if re.fullmatch("[a-z_]{1,40}", name) is None:
            raise InvalidSettings("the Redis URL has an option whose name is not valid")
        if name in options:
            raise InvalidSettings(f"the Redis URL sets {name} twice")
        if not value:
            raise InvalidSettings(f"the Redis URL's option {name} has no value")
        options[name] = value
    if "=" not in parts.query and parts.query:
        raise InvalidSettings("the Redis URL has an option without a value")
    return options


def _unknown_options(parts: SplitResult, names: list[str], *, secure: bool) -> InvalidSettings:
    """Return the error that names the remaining options, unless a name may be part of a password."""
    if "@" in parts.query:
        return InvalidSettings("the Redis URL has an unknown option")
    needs_tls = not secure and all(name.startswith("ssl_") for name in names)
    why = "they are for rediss:// and valkeys://" if needs_tls else "timeouts and limits are settings of REDISMEM_*"
    return InvalidSettings(f"the Redis URL has options that cannot be used: {', '.join(names)}; {why}")


def _flag(options: dict[str, str], name: str, default: bool, *, only: bool | None = None) -> bool:
    """Remove the option, and return its value. `only` is the only allowed value."""
    text = options.pop(name, "true" if default else "false").lower()
    if text not in (*_TRUE, *_FALSE) or (only is not None and (text in _TRUE) != only):
        raise InvalidSettings(
            f"the Redis URL's {name} must be {'true or false' if only is None else str(only).lower()}"
        )
    return text in _TRUE


def _number(options: dict[str, str], name: str, default: int) -> int:
    text = options.pop(name, str(default))
    if re.fullmatch("[0-9]{1,9}", text) is None:
        raise InvalidSettings(f"the Redis URL's {name} must be a number")
    return int(text)


def _greeting(options: dict[str, str]) -> tuple[Command, ...]:
    """Return the needed commands among HELLO or AUTH, CLIENT SETNAME, SELECT. Removes their options."""
    username, password = options.pop("username", None), options.pop("password", None)
    protocol, name, db = _number(options, "protocol", 2), options.pop("client_name", None), _number(options, "db", 0)
    if protocol not in (2, 3):
        raise InvalidSettings(f"the Redis URL's protocol must be 2 or 3, not {protocol}")
    if username is not None and password is None:
        password = ""  # a user without a password
    greeting: list[Command] = [("HELLO", "3")] if protocol == 3 else []
    if name is not None:
        greeting.append(("CLIENT", "SETNAME", name))
    if db:
        greeting.append(("SELECT", db))
    return tuple(greeting) if password is None else _with_login(greeting, username, password)


def _with_login(greeting: Sequence[Command], username: str | None, password: str) -> tuple[Command, ...]:
    if greeting and greeting[0][0] == "HELLO":
        return ((*greeting[0], "AUTH", username or "default", password), *greeting[1:])
    return (("AUTH", username, password) if username else ("AUTH", password), *greeting)


def _tls(options: dict[str, str]) -> ssl.SSLContext:
    """Return a TLS context that checks certificate and host name, unless the URL turns this off.

    Removes its options.
    """

    def take(name: str, default: Any = None) -> Any:
        return options.pop(f"ssl_{name}", default)

    authorities = {"cafile": take("ca_certs"), "capath": take("ca_path"), "cadata": take("ca_data")}
    certificate, key, password = take("certfile"), take("keyfile"), take("password")
    required, check_hostname = take("cert_reqs", "required"), _flag(options, "ssl_check_hostname", True)
    ciphers, oldest = take("ciphers"), take("min_version")
    if required not in _VERIFY:
        raise InvalidSettings("the Redis URL's ssl_cert_reqs must be required, optional or none")
    if oldest is not None and oldest not in _TLS_VERSIONS:
        raise InvalidSettings(f"the Redis URL's ssl_min_version must be one of {', '.join(_TLS_VERSIONS)}")
    if certificate is None and (key or password):
        raise InvalidSettings("the Redis URL has ssl_keyfile or ssl_password without ssl_certfile")
    try:
        context = ssl.create_default_context(**authorities)
        context.check_hostname = check_hostname and required != "none"
        context.verify_mode = _VERIFY[required]
        if oldest is not None:
            context.minimum_version = _TLS_VERSIONS[oldest]
        if ciphers:
            context.set_ciphers(ciphers)
        if certificate:
            context.load_cert_chain(certificate, key, password)
    except OSError as refused:
        raise InvalidSettings(f"the certificates in the Redis URL cannot be used: {refused}") from None
    return context
