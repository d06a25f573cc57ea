"""Several nodes in one URL: those of a cluster by which the others are found, or the sentinels that know the primary.

`redis+cluster://user:password@host:port,host:port` and `redis+sentinel://user:password@host:port,host:port/service/db`;
`rediss+…` for TLS, `valkey+…` and `valkeys+…` are the same. User, password and options are those of the nodes with the
data, as in the URL of one node; the sentinels' own stand in the options sentinel_username and sentinel_password.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from urllib.parse import parse_qsl, unquote, urlencode

from redismem.errors import InvalidSettings
from redismem.transport.url import Address

_SENTINEL_PORT = 26_379
_SENTINELS_OWN = ("sentinel_username", "sentinel_password")


@dataclass(frozen=True, slots=True)
class Places:
    """What a URL with several nodes says."""

    seeds: tuple[Address, ...]
    """The nodes that it names; those of Sentinel with what lets one in there."""
    node: Address
    """How to be let in at a node with data. Its host and port are none."""
    service: str = ""
    """What the sentinels call the primary and its replicas."""

    @property
    def place(self) -> str:
        """Hosts and ports of the seeds: fit for a log."""
        return ",".join(seed.place for seed in self.seeds)

    def at(self, host: str, port: int) -> Address:
        """The address of a node with data."""
        return replace(self.node, host=host, port=port)


def cluster(url: str) -> Places:
    """The nodes in a cluster's URL. Raises InvalidSettings, which names the option, not its value, and no URL."""
    scheme, login, hosts, path, query = _apart(url)
    node = Address.from_url(f"{scheme}://{login}node/{path}{query}")
    if any(command[0] == "SELECT" for command in node.greeting):
        raise InvalidSettings("a cluster has only database 0: the Redis URL names another")
    return Places(tuple(_at(node, host, 6379) for host in hosts), node)


def sentinel(url: str) -> Places:
    """The sentinels in their URL, and how the node with data is reached. Raises as `cluster` does."""
    scheme, login, hosts, path, query = _apart(url)
    service, _, db = path.partition("/")
    if not service:
        raise InvalidSettings("the Redis URL names no service: redis+sentinel://host:port,host:port/service/db")
    options = parse_qsl(query[1:], keep_blank_values=True)
    own = {name.removeprefix("sentinel_"): value for name, value in options if name in _SENTINELS_OWN}
    others = [(name, value) for name, value in options if name not in _SENTINELS_OWN]
    node = Address.from_url(f"{scheme}://{login}node/{db}{'?' if others else ''}{urlencode(others)}")
    asked = Address.from_url(f"redis://node{'?' if own else ''}{urlencode(own)}")
    seeds = tuple(_at(replace(asked, tls=node.tls), host, _SENTINEL_PORT) for host in hosts)
    # What is let in there must still be the primary: sentinels may not have heard yet that it is none.
    return Places(seeds, replace(node, greeting=(*node.greeting, ("ROLE",))), unquote(service))


def _apart(url: str) -> tuple[str, str, list[str], str, str]:
    """Scheme of one node, user and password with their @, hosts, path, and query with its ?."""
    scheme, _, rest = url.partition("://")
    rest, mark, query = rest.partition("?")
    place, _, path = rest.partition("/")
    login, at, hosts = place.rpartition("@")
    if "#" in url:
        raise InvalidSettings("the Redis URL is not usable: there is a # in it; in a password it is %23")
    return scheme.lower().partition("+")[0], login + at, hosts.split(","), path, mark + query


def _at(address: Address, host: str, port: int) -> Address:
    """The same at another host, and at its port or else this one. Raises InvalidSettings."""
    if not host.strip():
        raise InvalidSettings("the Redis URL names no host where there should be one")
    found = Address.from_url(f"redis://{host}")
    is_port_named = host.rpartition("]")[2].count(":") == 1
    return replace(address, host=found.host, port=found.port if is_port_named else port)
