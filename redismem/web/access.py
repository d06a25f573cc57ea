"""Access control by bearer keys. A key belongs to one namespace and has scopes. The server knows only its hash.

A key has 256 random bits, so a plain SHA-256 protects it. Each line of the list of keys is

    <name> <namespace> <scopes, separated by commas> <sha256 of the key, hexadecimal> [owner=<percent-encoded owner>]

Empty lines and lines that begin with # are skipped. `;` ends a line too, so that the list fits in an environment
variable.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Collection, Sequence
from typing import NamedTuple
from urllib.parse import quote, unquote_to_bytes

from redismem.errors import InvalidSettings
from redismem.web.http.problems import Problem
from redismem.web.http.queries import SEARCH

SCOPES = ("read", "write", "admin")
_PREFIX = "rmk_"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HASH = re.compile(r"[0-9a-f]{64}")
_KEY_CHARS = 256
_OWNER = "owner="
_OWNER_TEXT = re.compile(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")
_OWNER_BYTES = 256
_OPERATIONS = ("/v1/queues", "/v1/dead", "/v1/load", "/v1/doctor", "/v1/quarantine")
_READS = re.compile(r"/v1/sessions/[^/]+/(?:recall|find)")


class Caller(NamedTuple):
    """The holder of a key: its name, its namespace, its scopes and the hash of the key."""

    name: str
    namespace: str
    scopes: frozenset[str]
    digest: bytes = b""
    owner: str | None = None
    """The owner whose sessions alone the key reaches; `None` means all sessions of the namespace."""


def new_key(name: str, namespace: str, scopes: Sequence[str], owner: str | None = None) -> tuple[str, str]:
    """Return a new key and its line for the list of keys. With an owner it reaches the sessions of this owner alone.

    Raises:
        InvalidSettings: The name, the namespace, a scope or the owner is not valid.
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
    if owner is not None:
        _check_owner(owner, scopes)
        line = f"{line} {_OWNER}{quote(owner, safe='')}"
    return key, line


def _check_owner(owner: str, scopes: Collection[str], where: str = "a key") -> None:
    if "admin" in scopes:
        raise InvalidSettings(f"{where}: a key of one owner cannot have the scope admin, which sees all sessions")
    # As the store checks it again in each request.
    if not _OWNER_TEXT.fullmatch(owner) or owner != owner.strip() or len(owner.encode()) > _OWNER_BYTES:
        raise InvalidSettings(
            f"{where}: an owner is 1 to 256 bytes in UTF-8, without control characters or surrounding whitespace"
        )


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def _decode_owner(text: str) -> str:
    """Return the owner in a line; "", which is none, if it is not percent-encoded UTF-8."""
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeError:
        return ""


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
            owner = None
            if len(words) == 5 and words[4].startswith(_OWNER):
                owner = _decode_owner(words.pop()[len(_OWNER) :])
            if len(words) != 4 or not (_NAME.fullmatch(words[0]) and _NAME.fullmatch(words[1])):
                raise InvalidSettings(f"line {number} of the keys is not: name, namespace, scopes, sha256 of the key")
            scopes = frozenset(words[2].split(","))
            if not scopes <= set(SCOPES) or not _HASH.fullmatch(words[3].lower()):
                raise InvalidSettings(
                    f"line {number} of the keys: a scope is {', '.join(SCOPES)}; the hash is 64 hexadecimal digits"
                )
            if owner is not None:
                _check_owner(owner, scopes, f"line {number} of the keys")
            callers.append(Caller(words[0], words[1], scopes, bytes.fromhex(words[3]), owner))
        if len({caller.name for caller in callers}) < len(callers):
            raise InvalidSettings("two keys have the same name")
        return cls(callers, namespace)

    @property
    def is_open(self) -> bool:
        """True if requests need no key."""
        return not self._callers

    @property
    def has_owners(self) -> bool:
        """True if a key reaches the sessions of one owner alone."""
        return any(caller.owner is not None for caller in self._callers)

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
        """Return the holder of the key in this header. Compares in constant time.

        Raises:
            Problem: no_key.
        """
        if self.is_open:
            return self._anonymous
        scheme, _, given = (authorization or b"").decode("latin-1").partition(" ")
        given = given.strip()
        if scheme.lower() != "bearer" or not given or len(given) > _KEY_CHARS:
            raise Problem("no_key", "send the key as: Authorization: Bearer <key>")
        digest, holder = _hash(given), None
        for caller in self._callers:
            if hmac.compare_digest(caller.digest, digest):
                holder = caller
        if holder is None:
            raise Problem("no_key", "this key is not known")
        return holder


def needed_scope(method: str, path: str) -> str | None:
    """Return the scope that a request needs. `None` means that it needs no key."""
    if path in ("/livez", "/readyz", "/openapi.json"):
        return None
    if path == "/metrics" or path.startswith(_OPERATIONS):
        return "admin"
    is_read = path.endswith(("/recall", "/find")) and _READS.fullmatch(path)
    return "read" if method in ("GET", "HEAD") or path == SEARCH or is_read else "write"
