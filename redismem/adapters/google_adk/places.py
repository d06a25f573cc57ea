"""The records of sessions, users and apps, by their names."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial

from redismem.adapters.sessions import Opened, quote_part, unquote_part
from redismem.record import Record, Retention
from redismem.record.pages import all_listed

_PAGE_COUNT = 1_000
Name = tuple[str, str, str]
"""The names of app, user and session."""


@dataclass(frozen=True, slots=True)
class Places:
    """The records of one service."""

    opened: Opened
    prefix: str
    ttl_s: float | None
    retention: Retention
    """The policy of sessions. Records of users and apps have none."""

    def session(self, name: Name) -> Record:
        """Return the record of a session. It is in the shard of its user."""
        app_name, user_id, _ = name
        tag = self._id(app_name, user_id)
        return self.opened.memory.record(self._id(*name), tag=tag, owner=user_id, ttl_s=self.ttl_s)

    def user(self, app_name: str, user_id: str) -> Record:
        """Return the record with the state of a user."""
        tag = self._id(app_name, user_id)
        return self.opened.memory.record(tag, tag=tag, owner=user_id)

    def app(self, app_name: str) -> Record:
        """Return the record with the state of an app."""
        return self.opened.memory.record(self._id(app_name))

    async def pages(self, app_name: str, user_id: str | None) -> AsyncIterator[list[tuple[str, str]]]:
        """Yield user and id of the sessions of an app, or of one of its users."""
        beginning = self._id(app_name, "") if user_id is None else self._id(app_name, user_id, "")
        async for page in all_listed(partial(self.opened.memory.records, beginning, _PAGE_COUNT)):
            parts = [entry.id.removeprefix(self.prefix).split("/") for entry in page.records]
            yield [(unquote_part(each[1]), unquote_part(each[2])) for each in parts if len(each) == 3]

    def _id(self, *names: str) -> str:
        return self.prefix + "/".join(quote_part(name) for name in names)
