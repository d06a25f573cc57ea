"""Where a project lives: its keys, all with one hash tag, so that one script may touch them all."""

from __future__ import annotations

from redismem.errors import InvalidItem
from redismem.protocol.keys import NAMESPACE, Keys, plain

KINDS = "cdet"
"""The letters of conversations, decisions, entities and tasks: an item's id begins with one, and so do its indexes."""


class ProjectKeys:
    """The keys of one project. No name of a namespace holds an `@`, so no shard of sessions has such a tag."""

    __slots__ = ("_prefix", "changes", "items", "journal", "name", "names", "registry")

    def __init__(self, keys: Keys, name: str) -> None:
        if not isinstance(name, str) or NAMESPACE.fullmatch(name) is None:
            raise InvalidItem("the name of a project is 1 to 64 of [A-Za-z0-9._-], the first one alphanumeric")
        self.name = plain(name)
        self._prefix = f"rm:{{{keys.namespace}:@{self.name}}}:"
        self.items = f"{self._prefix}items".encode()
        self.names = f"{self._prefix}names".encode()
        self.journal = f"{self._prefix}journal".encode()
        self.changes = f"{self._prefix}changes".encode()
        self.registry = registry(keys)

    def staged(self, nonce: str) -> bytes:
        """Where an import is put down until it counts."""
        return f"{self._prefix}staged:{nonce}".encode()

    def versions(self, item_id: str) -> bytes:
        """Where the versions of an item stand, once it has two."""
        return f"{self._prefix}versions:{item_id}".encode()

    def index(self, kind: str, name: str) -> bytes:
        """An index of a kind of items, such as `open`, or `status:accepted`."""
        return f"{self._prefix}{kind}:{name}".encode()


def registry(keys: Keys) -> bytes:
    """The key that lists the projects of a namespace."""
    return f"rm:{{{keys.namespace}}}:projects".encode()
