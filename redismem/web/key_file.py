"""Follow the file of keys: a key that leaves the file is refused, and loses its streams, within seconds."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from redismem.errors import InvalidSettings, RedismemError
from redismem.events import facts
from redismem.web.access import Access
from redismem.web.service import Service

log = logging.getLogger("redismem")

POLL_S = 1.0


class KeyFile:
    """The file of a service's keys.

    A file that cannot be used changes nothing: the keys before stay valid, and an error is logged.
    """

    def __init__(self, service: Service, path: Path, open_memory: Callable[[str], Awaitable[None]]) -> None:
        """Follow this file. `open_memory` adds the memory of a new namespace to those of the service."""
        self._service = service
        self._path = path
        self._open_memory = open_memory
        self._waiting: Access | None = None
        """New keys that the next poll takes over, if the file is the same by then: this one may be half written."""
        self._fault = ""
        self._opening: asyncio.Task[None] | None = None
        self._unopened: dict[str, str] = {}

    async def follow(self, hangup: asyncio.Event) -> None:
        """Poll the file until cancelled. Once `hangup` is set, read it at once."""
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(POLL_S):
                        await hangup.wait()
                is_asked = hangup.is_set()
                hangup.clear()
                try:
                    await self.look(is_asked=is_asked)
                except Exception as error:  # a defect must not end the polling unseen
                    kind = type(error).__name__
                    log.error("cannot follow the file of keys: %s", kind, extra=facts(op="keys", error=kind))
        finally:
            if self._opening is not None:
                self._opening.cancel()
                await asyncio.wait((self._opening,))

    async def look(self, *, is_asked: bool = False) -> None:
        """Read the file once. Without `is_asked`, a change counts when two reads in a row have found it."""
        try:
            access = Access.of(await asyncio.to_thread(self._path.read_text))
            if access.is_open:
                raise InvalidSettings("it contains no key")
        except (OSError, UnicodeError, InvalidSettings) as error:
            self._note_fault(error, is_asked=is_asked)
            return
        self._fault = ""
        if access == self._service.access:
            self._waiting = None
            if is_asked:
                log.info("the file of keys has not changed", extra=facts(op="keys"))
        elif is_asked or access == self._waiting:
            self._replace(access)
        else:
            self._waiting = access
        self._open_missing()

    def _replace(self, access: Access) -> None:
        """Let these keys replace the valid ones, and end the streams of keys that are not among them."""
        before, self._waiting = self._service.access, None
        added, removed = access.names_beside(before), before.names_beside(access)
        self._service.access = access
        self._service.streams.revoke(access)
        text = "the keys have changed: %d are valid; new: %s; no longer valid: %s"
        log.info(
            text, access.keys_count, ", ".join(added) or "none", ", ".join(removed) or "none", extra=facts(op="keys")
        )

    def _note_fault(self, error: Exception, *, is_asked: bool) -> None:
        reason = (error.strerror or "") if isinstance(error, OSError) else str(error)
        fault = f"{type(error).__name__} {reason}"
        self._waiting = None
        if is_asked or fault != self._fault:
            text = "the file of keys cannot be used, so the keys before stay valid: %s"
            shown = "it is not UTF-8" if isinstance(error, UnicodeError) else reason
            log.error(text, shown, extra=facts(op="keys", error=type(error).__name__))
        self._fault = fault

    def _open_missing(self) -> None:
        """Open the memories of new namespaces in the background. The next poll tries again what has failed."""
        missing = [name for name in self._service.access.namespaces if name not in self._service.memories]
        if missing and (self._opening is None or self._opening.done()):
            self._opening = asyncio.create_task(self._open_all(missing))

    async def _open_all(self, namespaces: list[str]) -> None:
        for namespace in namespaces:
            try:
                await self._open_memory(namespace)
                self._unopened.pop(namespace, None)
            except RedismemError as error:
                kind = type(error).__name__
                if self._unopened.get(namespace) != kind:
                    text = "cannot open the memory of a new key, and try again: %s"
                    log.error(text, kind, extra=facts(op="keys", namespace=namespace, error=kind))
                self._unopened[namespace] = kind


async def warn_of_hangups(hangup: asyncio.Event) -> None:
    """Warn at each SIGHUP that there is no file to read, until cancelled."""
    while True:
        await hangup.wait()
        hangup.clear()
        log.warning("SIGHUP changes nothing: this server has no --keys-file to read again", extra=facts(op="keys"))
