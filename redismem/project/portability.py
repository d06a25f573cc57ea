"""A project as four files that people can read, and back: all of it or nothing, with every version."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from redismem.errors import Conflict, InvalidItem, InvalidTransition, TooLarge
from redismem.project import checks, searching
from redismem.project.folding import Delta, check_path, fold
from redismem.project.indexes import HISTORY
from redismem.project.items import Change, Items, Stored
from redismem.project.links import broken_links, entity_names, links
from redismem.project.schema import KINDS, Kind
from redismem.values import decode_value, pack

FORMAT = 1
ITEMS_LIMIT = 10_000
FILES = {"decisions.json": "d", "tasks.json": "t", "entities.json": "e", "conversations.json": "c"}


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import did: how many items were new, got another or longer history, stayed the same, and were erased."""

    added: int
    lengthened: int
    unchanged: int
    erased: int


async def export_files(items: Items) -> dict[str, str]:
    """The text of each file, by its name."""
    return {name: await _file(items, name, KINDS[letter]) for name, letter in FILES.items()}


async def _file(items: Items, name: str, kind: Kind) -> str:
    entries = []
    async for item_ids in searching.histories(items, kind):
        found = await items.read(item_ids, with_versions=True)
        entries += [_entry(stored) for stored in found if stored is not None]
    entries.sort(key=lambda entry: str(entry["id"]))
    document = {"format": FORMAT, "project": items.keys.name, name.removesuffix(".json"): entries}
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _entry(stored: Stored) -> dict[str, Any]:
    """What the item is now, for people; its versions, which the import goes by."""
    shown = {
        name: _written(name, stored.state[name])
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


def _written(name: str, value: Any) -> Any:
    return _time(value) if name in ("valid_until", "due_date", "completed_at", "ended_at") else value


def _time(ms: int) -> str:
    return checks.as_datetime(ms).isoformat(timespec="milliseconds")


async def import_files(items: Items, files: Mapping[str, str], replace: bool) -> Imported:
    """See `Project.import_files`."""
    given = {stored.id: stored for stored in _parsed(files)}
    if len(given) > ITEMS_LIMIT:
        raise TooLarge(f"an import holds {len(given)} items, at most {ITEMS_LIMIT:,} are allowed")
    there = {stored.id: stored async for stored in _everything(items)}
    result = dict(given) if replace else _merged(there, given)
    for text in broken_links(result):
        raise InvalidItem(f"the import would not agree with itself: {text}")
    holders: dict[str, str] = {}
    for stored in result.values():
        for name in entity_names(stored.state) if stored.kind.letter == "e" else ():
            if holders.setdefault(name, stored.id) != stored.id:
                raise Conflict(f"{holders[name]} and {stored.id} would have the same name")
    change = Change(items, await items.now_ms())
    counts = {"added": 0, "lengthened": 0, "unchanged": len(given), "erased": 0}
    for stored in given.values():
        word = _put(change, stored, there.get(stored.id), replace)
        counts["unchanged"] -= word != "unchanged"
        counts[word] += word != "unchanged"
    for stored in there.values():
        if stored.id not in result:
            change.erase(stored)
            counts["erased"] += 1
    _rename(change, there, result)
    _guard(change, there, given)
    await change.commit()
    return Imported(**counts)


def _guard(change: Change, there: Mapping[str, Stored], given: Mapping[str, Stored]) -> None:
    """Nobody may have added an item meanwhile, or changed one that an imported one is linked with."""
    for kind in KINDS.values():
        change.check_size(kind, HISTORY, sum(stored.kind is kind for stored in there.values()))
    for stored in given.values():
        for other, _, _ in links(stored):
            if other in there and other not in given:
                change.check(there[other])


def _put(change: Change, stored: Stored, old: Stored | None, replace: bool) -> str:
    before, after = ([] if old is None else _history(old)), _history(stored)
    if before == after or (before[: len(after)] == after and not replace):
        return "unchanged"
    change.put(stored, old, anew=after[: len(before)] != before)
    return "added" if old is None else "lengthened"


async def _everything(items: Items) -> Any:
    for kind in KINDS.values():
        async for item_ids in searching.histories(items, kind):
            for stored in await items.read(item_ids, with_versions=True):
                if stored is not None:
                    yield stored


def _merged(there: Mapping[str, Stored], given: Mapping[str, Stored]) -> dict[str, Stored]:
    """Both together; of an item in both, the longer history. Raises Conflict where neither goes on from the other."""
    result = dict(there)
    for item_id, stored in given.items():
        old = there.get(item_id)
        if old is None:
            result[item_id] = stored
            continue
        shorter, longer = sorted((_history(old), _history(stored)), key=len)
        if longer[: len(shorter)] != shorter:
            raise Conflict(f"{item_id} has another history here than in the import")
        if len(_history(stored)) > len(_history(old)):
            result[item_id] = stored
    return result


def _history(stored: Stored) -> list[tuple[Any, ...]]:
    deltas = sorted(stored.deltas or (), key=lambda delta: delta.version)
    return [(each.at_ms, each.known_ms, each.sets, each.adds, each.drops, each.reason) for each in deltas]


def _rename(change: Change, there: Mapping[str, Stored], result: Mapping[str, Stored]) -> None:
    before = {name: each.id for each in there.values() if each.kind.letter == "e" for name in entity_names(each.state)}
    after = {name: each.id for each in result.values() if each.kind.letter == "e" for name in entity_names(each.state)}
    for name in before.keys() | after.keys():
        if before.get(name, "") != after.get(name, ""):
            change.name(name, before.get(name, ""), after.get(name, ""))


def _parsed(files: Mapping[str, str]) -> Iterator[Stored]:
    for name, text in files.items():
        if name not in FILES:
            raise InvalidItem(f"an import consists of {', '.join(FILES)}")
        try:
            document = json.loads(text)
            entries = document[name.removesuffix(".json")] if document["format"] == FORMAT else None
        except (ValueError, TypeError, KeyError, RecursionError):
            entries = None
        if not isinstance(entries, list):
            raise InvalidItem(f"{name} is no export of a project in format {FORMAT}")
        for place, entry in enumerate(entries):
            try:
                yield _item(KINDS[FILES[name]], entry)
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as cause:
                why = f": {cause}" if isinstance(cause, InvalidItem | InvalidTransition) else ""
                raise InvalidItem(f"item {place} of {name} cannot be read{why}") from None


def _item(kind: Kind, entry: Any) -> Stored:
    """An item out of its versions. Raises InvalidItem and what reading a foreign form raises."""
    item_id = checks.item_id(kind.letter)(entry["id"], "the id")
    deltas = [_delta(kind, version) for version in entry["versions"]]
    if [delta.version for delta in deltas] != list(range(1, len(deltas) + 1)):
        raise InvalidItem("its versions are not numbered from 1")
    state = fold(kind, deltas)
    if state is None or any(delta.at_ms < deltas[0].at_ms for delta in deltas):
        raise InvalidItem("its first version is not the first")
    if kind.transitions is not None:
        check_path(kind, state)
    for name, value in state.items():
        spec = kind.fields.get(name)
        if spec is not None and spec.check is not None and name not in ("valid_until", "due_date"):
            spec.check(value, name)
    return Stored(kind, item_id, state, deltas, deltas[0] if len(deltas) == 1 else None)


def _delta(kind: Kind, version: Mapping[str, Any]) -> Delta:
    unknown = version.keys() - {"version", "at", "known_at", "sets", "adds", "drops", "reason"}
    fields = {name for part in ("sets", "adds", "drops") for name in version.get(part, {})}
    if unknown or fields - kind.fields.keys():
        raise InvalidItem("a version has a field that is unknown")
    at_ms, known_ms = (checks.moment(_moment(version[name]), name) for name in ("at", "known_at"))
    reason = checks.text(version.get("reason", ""), "reason")
    delta = Delta(version["version"], at_ms, known_ms, os.urandom(6).hex(), reason=reason)
    for part in ("sets", "adds", "drops"):
        setattr(delta, part, decode_value(pack(dict(version.get(part, {})), InvalidItem, part)))
    return delta


def _moment(text: Any) -> datetime:
    return datetime.fromisoformat(text)
