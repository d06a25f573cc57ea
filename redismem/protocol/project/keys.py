"""The keys of a project, all with one hash tag, so that one script may access all of them."""

from __future__ import annotations

from redismem.errors import InvalidItem
from redismem.protocol.keys import NAMESPACE, Keys, plain

KINDS = "cdet"
"""First letters of the ids and indexes of conversations, decisions, entities and tasks."""


class ProjectKeys:
    """The keys of one project. A namespace cannot contain `@`, so the tag differs from the tags of all shards."""

    __slots__ = ("_prefix", "changes", "items", "journal", "name", "names", "registry")

    def __init__(self, keys: Keys, name: str) -> None:
        if not isinstance(name, str) or NAMESPACE.fullmatch(name) is None:
            raise InvalidItem("a project name has 1 to 64 characters of [A-Za-z0-9._-], the first one alphanumeric")
        self.name = plain(name)
        self._prefix = f"rm:{{{keys.namespace}:@{self.name}}}:"
        self.items = f"{self._prefix}items".encode()
        self.names = f"{self._prefix}names".encode()
        self.journal = f"{self._prefix}journal".encode()
        self.changes = f"{self._prefix}changes".encode()
        self.registry = registry(keys)

    def staging(self, nonce: str) -> bytes:
        """Return the key of a staged import."""
        return f"{self._prefix}staged:{nonce}".encode()

    def versions(self, item_id: str) -> bytes:
        """Return the key of an item's versions, which exists once the item has two."""
        return f"{self._prefix}versions:{item_id}".encode()

    def index(self, kind: str, name: str) -> bytes:
        """Return the key of an index of a kind of items, such as `open` or `status:accepted`."""
        return f"{self._prefix}{kind}:{name}".encode()


def registry(keys: Keys) -> bytes:
    """Return the key that lists the projects of a namespace."""
    return f"rm:{{{keys.namespace}}}:projects".encode()
