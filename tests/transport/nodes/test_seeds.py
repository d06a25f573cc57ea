"""URLs with several nodes."""

from __future__ import annotations

import ssl

import pytest

from redismem import Settings
from redismem.blocking.memory import Memory as BlockingMemory
from redismem.errors import InvalidSettings
from redismem.memory.memory import Memory
from redismem.transport.nodes.seeds import parse_cluster, parse_sentinel


@pytest.mark.parametrize("scheme", ["redis", "valkey"])
def test_nodes_of_a_cluster(scheme: str) -> None:
    places = parse_cluster(f"{scheme}+cluster://user:p%2Cw@a:1,b,[::1]:3,[fe80::1]/0?client_name=pod")
    assert [seed.place for seed in places.seeds] == ["a:1", "b:6379", "[::1]:3", "[fe80::1]:6379"]
    assert places.place == "a:1,b:6379,[::1]:3,[fe80::1]:6379"
    assert places.at("c", 4).greeting == (("AUTH", "user", "p,w"), ("CLIENT", "SETNAME", "pod"))
    assert places.at("c", 4).place == "c:4"


def test_a_sentinel_url_has_two_logins() -> None:
    places = parse_sentinel(
        "redis+sentinel://:node@a:1,b/chats/3?sentinel_password=s%3Ap&sentinel_username=u&client_name=pod"
    )
    assert [seed.place for seed in places.seeds] == ["a:1", "b:26379"]
    assert places.seeds[0].greeting == (("AUTH", "u", "s:p"),)
    assert places.service == "chats"
    greeting = (("AUTH", "node"), ("CLIENT", "SETNAME", "pod"), ("SELECT", 3), ("ROLE",))
    assert places.at("c", 4).greeting == greeting
    assert parse_sentinel("redis+sentinel://a/chats").seeds[0].greeting == ()


@pytest.mark.parametrize("scheme", ["rediss", "valkeys"])
def test_tls_applies_to_all_nodes(scheme: str) -> None:
    for places in (parse_cluster(f"{scheme}+cluster://a,b"), parse_sentinel(f"{scheme}+sentinel://a,b/chats")):
        for address in (*places.seeds, places.at("c", 1)):
            assert isinstance(address.tls, ssl.SSLContext)
            assert address.tls.verify_mode == ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis+cluster://:geheim@a:1,b/3", "a cluster has only database 0"),
        ("redis+cluster://:geheim@a:1,,b", "has an empty host"),
        ("redis+cluster://:geheim@", "has an empty host"),
        ("redis+cluster://:geheim@a:one", "not usable"),
        ("redis+cluster://:geh#eim@a", "in a password write %23"),
        ("redis+cluster://:geheim@a?readonly=true", "cannot be used: readonly"),
        ("redis+cluster://:geheim@a?sentinel_password=geheim", "cannot be used: sentinel_password"),
        ("redis+cluster://:geheim@a?ssl_cert_reqs=none", "ssl_cert_reqs; they are for rediss://"),
        ("redis+sentinel://:geheim@a:1,b", "names no service"),
        ("redis+sentinel://:geheim@a:1,b/", "names no service"),
        ("redis+sentinel://:geheim@a:1,b/chats/x", "db must be a number"),
        ("redis+sentinel://:geheim@a:1,b/chats?socket_timeout=1", "socket_timeout; timeouts and limits are settings"),
        ("redis+other://a", "must begin with one of"),
        ("unix+cluster://a", "must begin with one of"),
    ],
)
@pytest.mark.parametrize("memory", [Memory, BlockingMemory])
def test_an_invalid_url_is_refused_without_its_password(
    memory: type[Memory] | type[BlockingMemory], url: str, said: str
) -> None:
    with pytest.raises(InvalidSettings) as refused:
        memory.connect(url, settings=Settings())
    assert said in str(refused.value)
    assert "geh" not in str(refused.value)
