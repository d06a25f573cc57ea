"""Who may do what: bearer keys, each bound to one namespace and to scopes. Only their hashes are kept.

A key is random, so a plain hash keeps it: nobody can try all of them. A line of the list is

    <name> <namespace> <scopes, with commas> <sha256 of the key, hexadecimal>

Empty lines and those that begin with # are passed over; `;` ends a line as well, for an environment variable.
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

SCOPES = ("read", "write", "admin")
_PREFIX = "rmk_"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HASH = re.compile(r"[0-9a-f]{64}")
_KEY_CHARS = 256


class Caller(NamedTuple):
    """Who asks: the name of a key, the namespace it is bound to, and what it may do."""

    name: str
    namespace: str
    scopes: frozenset[str]


def new_key(name: str, namespace: str, scopes: Sequence[str]) -> tuple[str, str]:
    """A new key, and its line for the list. Raises InvalidSettings."""
    key = _PREFIX + secrets.token_urlsafe(32)
    for what, word in (("name", name), ("namespace", namespace)):
        if not _NAME.fullmatch(word):
            raise InvalidSettings(
                f"the key's {what} is up to 64 letters, digits, '.', '_' and '-' of ASCII, without blanks"
            )
    if not scopes or not set(scopes) <= set(SCOPES):
        raise InvalidSettings("--scope is read, write or admin")
    line = f"{name} {namespace} {','.join(scopes)} {_hash(key).hex()}"
    return key, line


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


class Access:
    """The keys that are known; without any, everybody may do all there is in one namespace."""

    def __init__(self, keys: Sequence[tuple[bytes, Caller]], namespace: str = "default") -> None:
        self._keys = tuple(keys)
        self._everybody = Caller("", namespace, frozenset(SCOPES))
        self.namespaces = tuple(dict.fromkeys(caller.namespace for _, caller in keys)) or (namespace,)

    @classmethod
    def of(cls, text: str, namespace: str = "default") -> Access:
        """The keys of a list. Raises InvalidSettings, which names a line and never quotes it."""
        found: list[tuple[bytes, Caller]] = []
        for number, line in enumerate(re.split(r"[\n;]", text), 1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            if len(words) != 4 or not (_NAME.fullmatch(words[0]) and _NAME.fullmatch(words[1])):
                raise InvalidSettings(f"line {number} of the keys is not: name, namespace, scopes, sha256 of the key")
            scopes = frozenset(words[2].split(","))
            if not scopes <= set(SCOPES) or not _HASH.fullmatch(words[3].lower()):
                raise InvalidSettings(f"line {number} of the keys: scopes are of {', '.join(SCOPES)}, the hash is hex")
            found.append((bytes.fromhex(words[3]), Caller(words[0], words[1], scopes)))
        if len({caller.name for _, caller in found}) < len(found):
            raise InvalidSettings("two keys have the same name")
        return cls(found, namespace)

    @property
    def is_open(self) -> bool:
        """Whether no key is asked for."""
        return not self._keys

    def caller(self, authorization: bytes | None) -> Caller:
        """Who this header names. Takes as long for a wrong key as for a right one. Raises Problem: no_key."""
        if self.is_open:
            return self._everybody
        scheme, _, given = (authorization or b"").decode("latin-1").partition(" ")
        given = given.strip()
        if scheme.lower() != "bearer" or not given or len(given) > _KEY_CHARS:
            raise Problem("no_key", "send the key as: Authorization: Bearer <key>")
        hashed, found = _hash(given), None
        for known, caller in self._keys:
            if hmac.compare_digest(known, hashed):
                found = caller
        if found is None:
            raise Problem("no_key", "this key is not known")
        return found


def needed_scope(method: str, path: str) -> str | None:
    """What a key must be allowed for this; None: nothing, not even a key."""
    if path in ("/livez", "/readyz", "/openapi.json"):
        return None
    if path == "/metrics" or path.startswith(("/v1/queues", "/v1/dead", "/v1/load")):
        return "admin"
    return "read" if method in ("GET", "HEAD") else "write"
