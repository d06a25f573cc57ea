"""Access control by bearer keys. A key belongs to one namespace and has scopes. The server knows only its hash.

A key has 256 random bits, so a plain SHA-256 protects it. Each line of the list of keys is

    <name> <namespace> <scopes, separated by commas> <sha256 of the key, hexadecimal>

Empty lines and lines that begin with # are skipped. `;` ends a line too, so that the list fits in an environment
variable.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from typing import NamedTuple

from redismem.errors import InvalidSettings
from redismem.web.http.problems import Problem
from redismem.web.http.queries import SEARCH

SCOPES = ("read", "write", "admin")
_PREFIX = "rmk_"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HASH = re.compile(r"[0-9a-f]{64}")
_KEY_CHARS = 256
_RECALL = re.compile(r"/v1/sessions/[^/]+/recall")


class Caller(NamedTuple):
    """The owner of a key: its name, its namespace, its scopes and the hash of the key."""

    name: str
    namespace: str
    scopes: frozenset[str]
    digest: bytes = b""


def new_key(name: str, namespace: str, scopes: Sequence[str]) -> tuple[str, str]:
    """Return a new key and its line for the list of keys.

    Raises:
        InvalidSettings: The name, the namespace or a scope is not valid.
    """
    key = _PREFIX + secrets.token_urlsafe(32)
    for field, value in (("name", name), ("namespace", namespace)):
        if not _NAME.fullmatch(value):
            raise InvalidSettings(
                f"the {field} of a key has up to 64 ASCII letters, digits, '.', '_' and '-', and no blanks"
            )
    if not scopes or not set(scopes) <= set(SCOPES):
        raise InvalidSettings("a scope is read, write or admin")
    line = f"{name} {namespace} {','.join(scopes)} {_hash(key).hex()}"
    return key, line


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


class Access:
    """The known keys. Without keys, every request has all scopes in one namespace."""

    def __init__(self, callers: Sequence[Caller], namespace: str = "default") -> None:
        self._callers = tuple(callers)
        self._anonymous = Caller("", namespace, frozenset(SCOPES))
        self.namespaces = tuple(dict.fromkeys(caller.namespace for caller in callers)) or (namespace,)

    @classmethod
    def of(cls, text: str, namespace: str = "default") -> Access:
        """Read a list of keys.

        Raises:
            InvalidSettings: A line is malformed (the error gives its number only), or two keys have the same name.
        """
        callers: list[Caller] = []
        for number, line in enumerate(re.split(r"[\n;]", text), 1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            if len(words) != 4 or not (_NAME.fullmatch(words[0]) and _NAME.fullmatch(words[1])):
                raise InvalidSettings(f"line {number} of the keys is not: name, namespace, scopes, sha256 of the key")
            scopes = frozenset(words[2].split(","))
            if not scopes <= set(SCOPES) or not _HASH.fullmatch(words[3].lower()):
                raise InvalidSettings(
                    f"line {number} of the keys: a scope is {', '.join(SCOPES)}; the hash is 64 hexadecimal digits"
                )
            callers.append(Caller(words[0], words[1], scopes, bytes.fromhex(words[3])))
        if len({caller.name for caller in callers}) < len(callers):
            raise InvalidSettings("two keys have the same name")
        return cls(callers, namespace)

    @property
    def is_open(self) -> bool:
        """True if requests need no key."""
        return not self._callers

    @property
    def keys_count(self) -> int:
        """The number of keys."""
        return len(self._callers)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Access) and set(self._callers) == set(other._callers)

    def __hash__(self) -> int:
        return hash(frozenset(self._callers))

    def names_beside(self, other: Access) -> list[str]:
        """Return the names of the keys that the other list does not have, or has otherwise, sorted."""
        return sorted(caller.name for caller in set(self._callers) - set(other._callers))

    def knows(self, caller: Caller) -> bool:
        """True if this caller's key is still valid, for the same namespace and scopes."""
        return caller == self._anonymous if self.is_open else caller in self._callers

    def caller(self, authorization: bytes | None) -> Caller:
        """Return the owner of the key in this header. Compares in constant time.

        Raises:
            Problem: no_key.
        """
        if self.is_open:
            return self._anonymous
        scheme, _, given = (authorization or b"").decode("latin-1").partition(" ")
        given = given.strip()
        if scheme.lower() != "bearer" or not given or len(given) > _KEY_CHARS:
            raise Problem("no_key", "send the key as: Authorization: Bearer <key>")
        digest, owner = _hash(given), None
        for caller in self._callers:
            if hmac.compare_digest(caller.digest, digest):
                owner = caller
        if owner is None:
            raise Problem("no_key", "this key is not known")
        return owner


def needed_scope(method: str, path: str) -> str | None:
    """Return the scope that a request needs. `None` means that it needs no key."""
    if path in ("/livez", "/readyz", "/openapi.json"):
        return None
    if path == "/metrics" or path.startswith(("/v1/queues", "/v1/dead", "/v1/load", "/v1/doctor")):
        return "admin"
    return "read" if method in ("GET", "HEAD") or path == SEARCH or _RECALL.fullmatch(path) else "write"
