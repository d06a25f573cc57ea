"""Export a project as four readable files with every version, and import them, completely or not at all."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import chain
from typing import Any

from redismem.concurrency.offload import run_apart
from redismem.errors import Conflict, InvalidItem, InvalidTransition, TooLarge
from redismem.messages.values import decode_value, pack
from redismem.project.files import import_ as importing
from redismem.project.files import replacing, transcripts
from redismem.project.files.json import FILES, entries_of, project_of, text_of, text_of_entry
from redismem.project.files.transcripts import Transcript
from redismem.project.items import fields as checks
from redismem.project.items.items import Items, StoredItem
from redismem.project.items.links import find_broken_links_of, find_cycle
from redismem.project.items.schema import CONVERSATION, KINDS, ItemKind
from redismem.project.items.versions import Delta, check_path, fold
from redismem.project.kinds.conversations import Conversations
from redismem.project.queries import pages
from redismem.protocol.project import imports

ITEMS_LIMIT = 200_000
_TRIES_LIMIT = 10
_BATCH_COUNT = 50
Breathe = Callable[[int], Awaitable[None]]
"""A function that is called with the position of each item, and yields to the event loop now and then."""


@dataclass(frozen=True, slots=True)
class Imported:
    """The result of an import: the numbers of items added, replaced or extended, unchanged, and erased."""

    added: int
    lengthened: int
    unchanged: int
    erased: int


async def export_files(items: Items, conversations: Conversations) -> dict[str, str]:
    """Return the text of each file by name, all from one moment. Raises Conflict if the project kept changing."""
    for _ in range(_TRIES_LIMIT):
        seen = await items.run(imports.read_change_count(items.keys))
        files = {name: await _file(items, conversations, name, KINDS[letter]) for name, letter in FILES.items()}
        if await items.run(imports.read_change_count(items.keys)) == seen:
            return files
    raise Conflict("other writers kept changing the project, so it could not be exported")


async def _file(items: Items, conversations: Conversations, name: str, kind: ItemKind) -> str:
    item_ids = [item_id async for some in pages.load_ids(items, kind) for item_id in some]
    return await text_of(name, items.keys.name, _entries(items, conversations, sorted(item_ids)))


async def _entries(items: Items, conversations: Conversations, item_ids: list[str]) -> AsyncIterator[str]:
    for first in range(0, len(item_ids), _BATCH_COUNT):
        for stored in await items.read(item_ids[first : first + _BATCH_COUNT], with_versions=True):
            if stored is not None:
                entry = _build_entry(stored)
                if stored.kind is CONVERSATION and not stored.state["deleted"]:
                    entry |= await transcripts.export_transcript(conversations.session(stored.id))
                # In a thread if long: ten thousand messages take a fifth of a second.
                is_long = len(entry.get("messages", ())) > _BATCH_COUNT
                yield await run_apart(items.store.transport, partial(text_of_entry, entry), is_much=is_long)


def _build_entry(stored: StoredItem) -> dict[str, Any]:
    """Build the entry of an item: its current state, for human readers, and its versions, for the import."""
    shown = {
        name: _format_value(name, stored.state[name])
        for name, spec in stored.kind.fields.items()
        if stored.state[name] != spec.default and name not in ("mentions", "history")
    }
    versions = [
        {
            "version": delta.version,
            "at": _time(delta.at_ms),
            "known_at": _time(delta.known_ms),
            **{name: value for name in ("sets", "adds", "drops", "reason") if (value := getattr(delta, name))},
        }
        for delta in sorted(stored.deltas or (), key=lambda delta: delta.version)
    ]
    return {"id": stored.id, **shown, "versions": versions}


def _format_value(name: str, value: Any) -> Any:
    return _time(value) if name in ("valid_until", "due_date", "completed_at", "ended_at") else value


def _time(ms: int) -> str:
    return checks.as_datetime(ms).isoformat(timespec="milliseconds")


async def import_files(items: Items, conversations: Conversations, files: Mapping[str, str], replace: bool) -> Imported:
    """See `Project.import_files`."""
    _check_files(files, replace)
    max_message_bytes = items.store.settings.max_message_bytes
    breathe = partial(importing.breathe, items)
    given, transcripts_by_id = await _parse_files(files, max_message_bytes, breathe)
    seen = await items.run(imports.read_change_count(items.keys))
    there, lost = await replacing.load_readable(items) if replace else (await _load_items(items), [])
    if replace and (there or lost) and not given:
        raise InvalidItem("the import has no items; to erase a project, use `clear` of each kind")
    result = await (_replace if replace else _merge)(there, given, breathe)
    await _check_together(result, breathe)
    created = await transcripts.write_transcripts(items, conversations, transcripts_by_id)
    try:
        if replace:
            pieces = await replacing.build_pieces(items, there, lost, result)
        else:
            pieces = await importing.build_pieces(items, there, result)
        await importing.write(items, seen, pieces)
    except (Conflict, TooLarge):
        for session in created:
            await session.clear()
        raise
    known = {*there, *lost}
    gone = known - result.keys()
    for item_id in gone:
        if item_id.startswith("c-"):
            await conversations.session(item_id).clear()
    added = len(given.keys() - known)
    unchanged = sum(result.get(item_id) is there.get(item_id) for item_id in given)
    return Imported(added, len(given) - added - unchanged, unchanged, len(gone))


async def _check_together(result: Mapping[str, StoredItem], breathe: Breathe) -> None:
    """Raise InvalidItem for items that contradict each other, Conflict for two entities with the same name."""
    passed: set[str] = set()
    for at, stored in enumerate(result.values()):
        await breathe(at)
        for text in chain(find_broken_links_of(stored, result), find_cycle(stored, result, passed)):
            raise InvalidItem(f"the import is inconsistent: {text}")
    holders: dict[str, str] = {}
    for name, holder in importing.names_of(result):
        if holders.setdefault(name, holder) != holder:
            raise Conflict(f"{holders[name]} and {holder} would have the same name")


def _check_files(files: Mapping[str, str], replace: bool) -> None:
    """Raise InvalidItem if the set of files is invalid, or if a replacement is not a complete export."""
    if not isinstance(files, Mapping) or not all(isinstance(text, str) for text in files.values()):
        raise InvalidItem("an import must map file names to texts, as `export_files` returns them")
    if not replace:
        return
    if missing := [name for name in FILES if name not in files]:
        raise InvalidItem(f"a replacement needs all files of an export: {', '.join(missing)} missing")
    names = {name for text in files.values() if (name := project_of(text)) is not None}
    if len(names) > 1:
        raise InvalidItem("a replacement must be one export, but these files are of several projects")


async def _load_items(items: Items) -> dict[str, StoredItem]:
    there: dict[str, StoredItem] = {}
    for kind in KINDS.values():
        async for item_ids in pages.load_ids(items, kind):
            found = await items.read(item_ids, with_versions=True)
            there |= {stored.id: stored for stored in found if stored is not None}
    return there


async def _replace(
    there: Mapping[str, StoredItem], given: Mapping[str, StoredItem], breathe: Breathe
) -> dict[str, StoredItem]:
    """Return the given items. A stored item with the same state and versions is returned instead of its copy."""
    result = dict(given)
    for at, stored in enumerate(given.values()):
        await breathe(at)
        before = there.get(stored.id)
        if before is not None and before.state == stored.state and _history(before) == _history(stored):
            result[stored.id] = before
    return result


async def _merge(
    there: Mapping[str, StoredItem], given: Mapping[str, StoredItem], breathe: Breathe
) -> dict[str, StoredItem]:
    """Merge stored and given items. An item in both gets the longer history. Raises Conflict if histories diverge."""
    result = dict(there)
    for at, (item_id, stored) in enumerate(given.items()):
        await breathe(at)
        before = _history(there[item_id]) if item_id in there else []
        after = _history(stored)
        if after[: len(before)] != before[: len(after)]:
            raise Conflict(f"{item_id} has another history here than in the import")
        if len(after) > len(before):
            result[item_id] = stored
    return result


def _history(stored: StoredItem) -> list[tuple[Any, ...]]:
    deltas = sorted(stored.deltas or (), key=lambda delta: delta.version)
    return [(each.at_ms, each.known_ms, each.sets, each.adds, each.drops, each.reason) for each in deltas]


async def _parse_files(
    files: Mapping[str, str], max_message_bytes: int, breathe: Breathe
) -> tuple[dict[str, StoredItem], dict[str, Transcript]]:
    """Parse the items and the transcripts. Raises InvalidItem, TooLarge."""
    given: dict[str, StoredItem] = {}
    transcripts_by_id: dict[str, Transcript] = {}
    for name, text in files.items():
        for place, entry in enumerate(entries_of(name, text)):
            await breathe(place)
            try:
                stored = _parse_item(KINDS[FILES[name]], entry)
                if given.setdefault(stored.id, stored) is not stored:
                    raise InvalidItem("its id occurs twice in the import")
                if "messages" in entry:
                    transcripts_by_id[stored.id] = transcripts.parse_transcript(entry, max_message_bytes)
            except TooLarge:
                raise
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as cause:
                why = f": {cause}" if isinstance(cause, InvalidItem | InvalidTransition) else ""
                raise InvalidItem(f"item {place} of {name} cannot be read{why}") from None
    if len(given) > ITEMS_LIMIT:
        raise TooLarge(f"an import holds {len(given)} items, over {ITEMS_LIMIT:,}, a fixed limit")
    return given, transcripts_by_id


def _parse_item(kind: ItemKind, entry: Any) -> StoredItem:
    """Rebuild an item from its versions. Raises InvalidItem, and the errors of decoding a foreign format."""
    item_id = checks.item_id(kind.letter)(entry["id"], "the id")
    deltas = [_parse_delta(kind, version) for version in entry["versions"]]
    if [delta.version for delta in deltas] != list(range(1, len(deltas) + 1)):
        raise InvalidItem("its versions are not numbered from 1")
    state = fold(kind, deltas)
    if state is None or any(delta.at_ms < deltas[0].at_ms for delta in deltas):
        raise InvalidItem("its first version is not the first")
    check_path(kind, state)
    for name, spec in kind.fields.items():
        spec.check_stored(state[name], name)
    return StoredItem(kind, item_id, state, deltas, deltas[0] if len(deltas) == 1 else None)


def _parse_delta(kind: ItemKind, version: Mapping[str, Any]) -> Delta:
    unknown = version.keys() - {"version", "at", "known_at", "sets", "adds", "drops", "reason"}
    fields = {name for part in ("sets", "adds", "drops") for name in version.get(part, {})}
    if unknown or fields - kind.fields.keys():
        raise InvalidItem("a version has an unknown field")
    at_ms, known_ms = (checks.moment(_moment(version[name]), name) for name in ("at", "known_at"))
    reason = checks.reason(version.get("reason", ""))
    delta = Delta(version["version"], at_ms, known_ms, os.urandom(6).hex(), reason=reason)
    for part in ("sets", "adds", "drops"):
        fields = decode_value(pack(dict(version.get(part, {})), InvalidItem, part))
        for name, value in fields.items():
            _check_part(kind, part, name, value)
        setattr(delta, part, fields)
    return delta


def _check_part(kind: ItemKind, part: str, name: str, value: Any) -> None:
    """Check the values of one version, apart from the state that the version changes. Raises InvalidItem, TooLarge."""
    default = kind.fields[name].default
    if part == "drops":
        if not isinstance(value, list) or not isinstance(default, list | dict):
            raise InvalidItem(f"a version cannot drop values from {name}")
    elif part == "sets" or (isinstance(default, list | dict | int) and not isinstance(default, bool)):
        kind.fields[name].check_stored(value, name)
    else:
        raise InvalidItem(f"a version cannot add to {name}")


def _moment(text: Any) -> datetime:
    return datetime.fromisoformat(text)
