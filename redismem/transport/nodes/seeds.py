"""Parse a URL with several addresses: the seeds of a cluster, or sentinels.

`redis+cluster://user:password@host:port,host:port` and `redis+sentinel://user:password@host:port,host:port/service/db`;
`rediss+…` for TLS; `valkey+…` and `valkeys+…` are synonyms. User, password and options are used for the data nodes, as
in the URL of a single node. The options sentinel_username and sentinel_password are for the sentinels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from urllib.parse import parse_qsl, unquote, urlencode

from redismem.errors import InvalidSettings
from redismem.transport.credentials import Asker
from redismem.transport.url import Address

_SENTINEL_PORT = 26_379
_SENTINELS_OWN = ("sentinel_username", "sentinel_password")


@dataclass(frozen=True, slots=True)
class Places:
    """The content of a URL with several addresses."""

    seeds: tuple[Address, ...]
    """The addresses in the URL. Sentinels have their own login."""
    node: Address
    """The login and options of the data nodes. Host and port are placeholders."""
    service: str = ""
    """The sentinels' name for the primary and its replicas."""

    @property
    def place(self) -> str:
        """The hosts and ports of the seeds. They contain no password, so they may be logged."""
        return ",".join(seed.place for seed in self.seeds)

    def at(self, host: str, port: int) -> Address:
        """Return the address of a data node."""
        return replace(self.node, host=host, port=port)


def parse_cluster(url: str, asker: Asker | None = None) -> Places:
    """Parse a cluster's URL. With an asker, the URL may contain no password.

    Raises:
        InvalidSettings: The URL cannot be used. The error names the option, but quotes neither its value nor the URL.
    """
    scheme, login, hosts, path, query = _split(url)
    node = Address.from_url(f"{scheme}://{login}node/{path}{query}", asker)
    if any(command[0] == "SELECT" for command in node.greeting):
        raise InvalidSettings("a cluster has only database 0: the Redis URL names another")
    return Places(tuple(_with_host(node, host, 6379) for host in hosts), node)


def parse_sentinel(url: str, asker: Asker | None = None) -> Places:
    """Parse the URL of sentinels. The asker is for the data nodes. Raises as `parse_cluster` does."""
    scheme, login, hosts, path, query = _split(url)
    service, _, db = path.partition("/")
    if not service:
        raise InvalidSettings("the Redis URL names no service: redis+sentinel://host:port,host:port/service/db")
    options = parse_qsl(query[1:], keep_blank_values=True)
    own = {name.removeprefix("sentinel_"): value for name, value in options if name in _SENTINELS_OWN}
    others = [(name, value) for name, value in options if name not in _SENTINELS_OWN]
    node = Address.from_url(f"{scheme}://{login}node/{db}{'?' if others else ''}{urlencode(others)}", asker)
    sentinel = Address.from_url(f"redis://node{'?' if own else ''}{urlencode(own)}")
    seeds = tuple(_with_host(replace(sentinel, tls=node.tls), host, _SENTINEL_PORT) for host in hosts)
    # The greeting checks that the node is still the primary, because the sentinels may not know of a failover yet.
    return Places(seeds, replace(node, greeting=(*node.greeting, ("ROLE",))), unquote(service))


def _split(url: str) -> tuple[str, str, list[str], str, str]:
    """Return the scheme of a single node, login with its @, hosts, path, and query with its ?."""
    scheme, _, rest = url.partition("://")
    rest, mark, query = rest.partition("?")
    place, _, path = rest.partition("/")
    login, at, hosts = place.rpartition("@")
    if "#" in url:
        raise InvalidSettings("the Redis URL is not usable: it contains a #; in a password write %23")
    return scheme.lower().partition("+")[0], login + at, hosts.split(","), path, mark + query


def _with_host(address: Address, host: str, port: int) -> Address:
    """Return the address with another host, and the port given with the host, or else `port`.

    Raises InvalidSettings.
    """
    if not host.strip():
        raise InvalidSettings("the Redis URL has an empty host")
    other = Address.from_url(f"redis://{host}")
    is_port_named = host.rpartition("]")[2].count(":") == 1
    return replace(address, host=other.host, port=other.port if is_port_named else port)
