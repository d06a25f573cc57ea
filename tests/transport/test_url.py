"""URLs and logins: users, databases, unix sockets, TLS; for the lane and the blocking lane."""

from __future__ import annotations

import inspect
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import redis
from support.redis_server import PASSWORD, GuardedServer, TlsServer

from redismem.errors import InvalidSettings
from redismem.protocol.server_errors import ConnectionLost, ServerError
from redismem.transport.base import Transport
from redismem.transport.lane.blocking import BlockingLane
from redismem.transport.lane.lane import Lane
from redismem.transport.url import Address

SECRET = quote(PASSWORD, safe="")
Connect = Callable[[str], Transport]


@pytest.fixture(params=["lane", "blocking"])
def connect(request: pytest.FixtureRequest) -> Connect:
    if request.param == "lane":
        return lambda url: Lane(Address.from_url(url), stall_s=60)
    return lambda url: BlockingLane(Address.from_url(url), max_connections=2)


async def ask(transport: Transport, *command: str) -> Any:
    try:
        (reply,) = await transport.run([command], 60)
        if isinstance(reply, ServerError):
            raise reply
        return reply
    finally:
        await transport.aclose()


async def client_info(transport: Transport) -> dict[str, str]:
    """Return the server's view of the connection."""
    told: bytes = await ask(transport, "CLIENT", "INFO")
    return dict(word.split("=", 1) for word in told.decode().split())


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://", Address()),
        ("redis://h:1/2", Address("h", 1, greeting=(("SELECT", 2),))),
        ("redis://h?db=3", Address("h", greeting=(("SELECT", 3),))),
        ("redis://[::1]:7", Address("::1", 7)),
        ("redis://:a%3Ab@h", Address("h", greeting=(("AUTH", "a:b"),))),
        ("redis://u:p@h/0", Address("h", greeting=(("AUTH", "u", "p"),))),
        ("redis://h?protocol=3", Address("h", greeting=(("HELLO", "3"),))),
        ("redis://:p@h?protocol=3", Address("h", greeting=(("HELLO", "3", "AUTH", "default", "p"),))),
        ("valkey://u:p@h:1/2", Address("h", 1, greeting=(("AUTH", "u", "p"), ("SELECT", 2)))),
        ("redis://u@h", Address("h", greeting=(("AUTH", "u", ""),))),
        ("redis://h?username=u&password=p%40", Address("h", greeting=(("AUTH", "u", "p@"),))),
        ("redis://h/?socket_keepalive=True", Address("h")),
        (
            "unix://u:p@/a/b.sock?db=1&client_name=n",
            Address(path="/a/b.sock", greeting=(("AUTH", "u", "p"), ("CLIENT", "SETNAME", "n"), ("SELECT", 1))),
        ),
    ],
)
def test_what_a_url_says(url: str, expected: Address) -> None:
    assert Address.from_url(url) == expected


@pytest.mark.parametrize(
    "url",
    [
        "http://u:secret@h",
        "redis://:secret@h:99999",
        "redis://:secret@h?db=secret",
        "redis://h?se=cret@other",
        "redis://u:p?secret=x@h",
        "redis://:secret@h?protocol=4",
        "redis://:secret@h?decode_responses=secret",
        "redis://:secret@h?ssl_ca_certs=secret",
        "rediss://:secret@h?ssl_cert_reqs=secret",
        "rediss://:secret@h?ssl_ca_certs=/nowhere/ca.crt",
    ],
)
def test_a_url_that_cannot_be_used_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(InvalidSettings) as refused:
        Address.from_url(url)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis://h?socket_timeout=5", "socket_timeout; timeouts and limits are settings of REDISMEM_*"),
        ("redis://h?max_connections=5", "max_connections; timeouts and limits"),
        ("redis://h?decode_responses=false&health_check_interval=3", "decode_responses, health_check_interval"),
        ("valkey://h?lib_name=x", "cannot be used: lib_name"),
        ("redis://h?dbb=1", "cannot be used: dbb"),
        ("redis://h?ssl_ca_certs=x", "ssl_ca_certs; they are for rediss:// and valkeys://"),
        ("redis://h?host=other", "cannot be used: host"),
        ("redis://h?db=", "option db has no value"),
        ("redis://h?db", "option db has no value"),
        ("redis://h?db=1&db=2", "sets db twice"),
        ("redis://h/1?db=1", "sets db twice"),
        ("redis://u:p@h?password=p", "sets password twice"),
        ("redis://h/one", "db must be a number"),
        ("redis://h/1/2", "db must be a number"),
        ("redis://h?db=-1", "db must be a number"),
        ("redis://h?protocol=three", "protocol must be a number"),
        ("redis://h?socket_keepalive=no", "socket_keepalive must be true"),
        ("rediss://h?ssl_check_hostname=never", "ssl_check_hostname must be true or false"),
        ("rediss://h?ssl_min_version=TLSv1", "ssl_min_version must be one of"),
        ("rediss://h?ssl_keyfile=x", "without ssl_certfile"),
        ("rediss://h?ssl_ciphers=none-such", "cannot be used"),
        ("redis://h/0#1", "scheme, host or port"),
        ("unix://h/a.sock", "scheme, host or port"),
    ],
)
def test_no_option_is_ignored(url: str, said: str) -> None:
    with pytest.raises(InvalidSettings) as refused:
        Address.from_url(url)
    assert said in str(refused.value)


def test_each_option_of_redis_py_is_used_or_refused_by_name() -> None:
    """All parameters of redis-py's connections: a URL that worked there loses no option silently."""
    parameters = {
        name
        for kind in (redis.Connection, redis.SSLConnection, redis.ConnectionPool, redis.connection.AbstractConnection)
        for name in inspect.signature(kind.__init__).parameters
        if name not in ("self", "kwargs", "args", "connection_kwargs")
    }
    assert parameters >= {"socket_timeout", "ssl_ciphers", "health_check_interval", "max_connections"}
    for name in parameters - {"db", "username", "password", "client_name", "protocol", "socket_keepalive"}:
        with pytest.raises(InvalidSettings, match=name):
            Address.from_url(f"redis://h?{name}=1")


def test_tls_checks_certificate_and_name_unless_told_otherwise() -> None:
    checks = Address.from_url("rediss://h").tls
    assert checks is not None
    assert (checks.verify_mode, checks.check_hostname) == (ssl.CERT_REQUIRED, True)
    lax = Address.from_url("rediss://h?ssl_cert_reqs=none").tls
    assert lax is not None
    assert (lax.verify_mode, lax.check_hostname) == (ssl.CERT_NONE, False)
    assert Address.from_url("valkeys://h").tls is not None
    strict = Address.from_url("rediss://h?ssl_min_version=TLSv1_3&ssl_ciphers=ECDHE%2BAESGCM").tls
    assert strict is not None
    assert strict.minimum_version == ssl.TLSVersion.TLSv1_3
    assert {cipher["name"] for cipher in strict.get_ciphers()} < {cipher["name"] for cipher in checks.get_ciphers()}
    assert SECRET not in repr(Address.from_url(f"redis://:{SECRET}@h"))


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("user", ["", "app"])
async def test_a_user_can_log_in(guarded: GuardedServer, connect: Connect, user: str, protocol: int) -> None:
    url = f"redis://{user}:{SECRET}@127.0.0.1:{guarded.port}/3?protocol={protocol}&client_name=shop"
    info = await client_info(connect(url))
    assert (info["user"], info["db"], info["name"]) == (user or "default", "3", "shop")
    assert info["resp"] == str(protocol)


async def test_over_a_unix_socket(guarded: GuardedServer, connect: Connect) -> None:
    info = await client_info(connect(f"unix://app:{SECRET}@{guarded.socket_path}?db=5"))
    assert (info["user"], info["db"]) == ("app", "5")
    assert info["laddr"].startswith(str(guarded.socket_path))


@pytest.mark.parametrize(
    ("login", "word"), [("", "NOAUTH"), (":wrong@", "WRONGPASS"), (f"nobody:{SECRET}@", "WRONGPASS")]
)
async def test_a_failed_login_says_why(guarded: GuardedServer, connect: Connect, login: str, word: str) -> None:
    for protocol in (2, 3):
        with pytest.raises(ServerError) as refused:
            await ask(connect(f"redis://{login}127.0.0.1:{guarded.port}/0?protocol={protocol}"), "PING")
        assert refused.value.word == word
        assert PASSWORD not in str(refused.value)


async def test_a_forbidden_transaction_raises(guarded: GuardedServer, connect: Connect) -> None:
    transport = connect(f"redis://reader:{SECRET}@127.0.0.1:{guarded.port}/0")
    with pytest.raises(ServerError) as refused:
        await transport.run([("GET", "a"), ("SET", "a", 1), ("GET", "a")], 60)
    assert refused.value.word == "NOPERM"
    assert await transport.run([("GET", "a")], 60) == [None]
    await transport.aclose()


def tls_url(server: TlsServer, host: str = "127.0.0.1", **options: str | Path) -> str:
    return f"rediss://{host}:{server.tls_port}/0?" + "&".join(f"ssl_{key}={value}" for key, value in options.items())


@pytest.mark.parametrize(
    "url",
    [
        "redis://:CANARY/x@h:6379/0",
        "redis://u:123/CANARY@h:6379",
        "redis://u:CANARY#x@h",
        "rediss://u:12#CANARY@h",
        "redis://u:CANARY?x@h",
        "redis://u:12?CANARY=x@h",
    ],
)
def test_an_unencoded_password_gives_a_hint(url: str) -> None:
    with pytest.raises(InvalidSettings, match=r"percent-encode .* %2F %3F %23 %40") as refused:
        Address.from_url(url)
    assert "CANARY" not in str(refused.value)


@pytest.mark.parametrize("url", ["redis://u:p%2F%23%40@h:x", "redis://h/one", "redis://h/0?nonsense=1"])
def test_other_mistakes_give_no_hint_about_encoding(url: str) -> None:
    with pytest.raises(InvalidSettings) as refused:
        Address.from_url(url)
    assert "percent-encode" not in str(refused.value)


@pytest.fixture
def client_certificate(certificates: Path) -> dict[str, str | Path]:
    return {"certfile": certificates / "node.crt", "keyfile": certificates / "node.key"}


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_over_tls(
    tls_server: TlsServer, connect: Connect, certificates: Path, client_certificate: dict[str, Any], host: str
) -> None:
    authority = certificates / "ca.crt"
    big = "x" * 300_000
    assert await ask(connect(tls_url(tls_server, host, ca_certs=authority, **client_certificate)), "ECHO", big) == (
        big.encode()
    )
    assert await ask(connect(tls_url(tls_server, host, cert_reqs="none", **client_certificate)), "PING") == b"PONG"


async def test_tls_refuses_strangers(
    tls_server: TlsServer, connect: Connect, certificates: Path, client_certificate: dict[str, Any]
) -> None:
    authority = certificates / "ca.crt"
    for url, why in [
        (tls_url(tls_server, **client_certificate), "SSLCertVerificationError"),
        # Another name of 127.0.0.1, which the certificate does not have.
        (tls_url(tls_server, "127.1", ca_certs=authority, **client_certificate), "SSLCertVerificationError"),
        (tls_url(tls_server, ca_certs=authority), "."),
        (f"redis://127.0.0.1:{tls_server.tls_port}", "."),
    ]:
        transport = connect(url)
        with pytest.raises(ConnectionLost, match=why):
            await transport.run([("PING",)], 0.1 if why == "." else 60)
        await transport.aclose()
