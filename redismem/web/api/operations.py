"""The routes for operators: queues, dead sessions, quarantine, load, health and metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from itertools import islice
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import PlainTextResponse

from redismem.errors import CorruptSession, RedismemError
from redismem.inspection import dead, quarantine, servers
from redismem.inspection.doctor import LOOKED_AT_COUNT
from redismem.memory.memory import Memory
from redismem.messages.decoding import is_gap
from redismem.store.depths import depths_of
from redismem.web.api import operations_schemas as schemas
from redismem.web.api.sessions import TheCaller, TheMemory, TheService, service_of
from redismem.web.http.json import Json, message_document
from redismem.web.http.problems import Problem

router = APIRouter(tags=["operations"])
_CHECK_S = 1.0
_CHECKED_COUNT = 8
_SHOWN_COUNT = 200


class _Check(NamedTuple):
    """The readiness of the store for one namespace."""

    readable: bool
    writable: bool
    keeping: bool


@router.get("/v1/queues", response_model=schemas.Queues)
async def show_queues(memory: TheMemory) -> Response:
    """Return the length of each queue, and how long its first session has waited."""
    return Json((await depths_of(memory.store)).document())


@router.get("/v1/doctor", response_model=schemas.DoctorDocument)
async def show_findings(caller: TheCaller, service: TheService, again: bool = False) -> Response:
    """Return the findings of `redismem doctor`, worst first, with advice, and the processes with workers.

    The quick questions are asked at most once a second, the others at most once a minute; with `again` all at once.
    """
    return Json((await service.checkup(caller).look(again=again)).document())


@router.get("/v1/dead", response_model=schemas.DeadDocument)
async def list_dead(memory: TheMemory, limit: Annotated[int, Query(ge=1, le=1_000)] = 100) -> Response:
    """Return sessions whose summary has failed for good, longest dead first. They keep all their messages."""
    listed = await dead.list_dead(memory.store, limit)
    rows = [session.document() for session in listed.sessions]
    return Json({"count": listed.count, "now_ms": listed.now_ms, "sessions": rows})


@router.post("/v1/dead/retry", response_model=schemas.DeadTaken)
async def retry_dead(memory: TheMemory, named: schemas.DeadNamed) -> Response:
    """Make dead sessions overdue again at once, with all their attempts."""
    return _requeued_answer(await dead.requeue(memory.store, named.session_ids, again=True))


@router.post("/v1/dead/drop", response_model=schemas.DeadTaken)
async def drop_dead(memory: TheMemory, named: schemas.DeadNamed) -> Response:
    """Remove sessions from the list. The data of a session stays, and its next message may queue it again."""
    return _requeued_answer(await dead.requeue(memory.store, named.session_ids, again=False))


def _requeued_answer(requeued: dead.Requeued) -> Response:
    return Json({"taken": requeued.taken, "not_dead": requeued.missing, "other_layout": requeued.foreign})


@router.get("/v1/quarantine", response_model=schemas.QuarantineList)
async def list_quarantined(
    memory: TheMemory,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
    cursor: Annotated[int, Query(ge=0, lt=1 << 63)] = 0,
) -> Response:
    """Return the sessions and records in quarantine, oldest first. Looks at the next 200,000 keys of the Redis.

    There is no index of them, so this scans keys: ask seldom. A cursor continues the scan.
    """
    found = await quarantine.list_quarantined(memory.store, limit, cursor=cursor, looked_at_limit=LOOKED_AT_COUNT)
    document = {
        "now_ms": await memory.server_time_ms(),
        "entries": [_entry(each) for each in found.found],
        "looked_at_count": found.looked_at_count,
        "cursor": None if found.cursor is None else str(found.cursor),  # may exceed the integers of JavaScript
    }
    return Json(document)


def _entry(found: quarantine.Quarantined) -> dict[str, Any]:
    keys = [key._asdict() for key in found.keys]
    about = {"kind": found.kind, "id": found.name, "log": found.log_id, "put_ms": found.put_ms}
    return about | {"owner": found.owner, "keys": keys}


async def _find(memory: Memory, named: schemas.QuarantineNamed) -> quarantine.Quarantined:
    return await quarantine.find(memory.store, named.id, named.put_ms, is_record=named.kind == "record")


@router.post("/v1/quarantine/show", response_model=schemas.QuarantineParts)
async def show_quarantined(caller: TheCaller, memory: TheMemory, named: schemas.QuarantineNamed) -> Response:
    """Return the faults of one in quarantine, and its readable messages if the key may read. Changes nothing."""
    found = await _find(memory, named)
    parts = await quarantine.read(memory.store, found)
    messages = [message_document(each) for each in parts.messages[:_SHOWN_COUNT] if not is_gap(each)]
    document = {
        "faults": [*dict.fromkeys(parts.faults)],
        "is_live": await quarantine.is_live(memory.store, found),
        "has_lost_owner": parts.has_lost_owner,
        "is_readable": not parts.faults or bool(parts.messages or parts.fields),
        "messages_count": len(parts.messages),
        "summaries_count": len(parts.summaries),
        "messages": messages if "read" in caller.scopes else None,
    }
    return Json(_entry(found) | document)


@router.post("/v1/quarantine/restore", response_model=schemas.QuarantineRestored)
async def restore_quarantined(memory: TheMemory, named: schemas.QuarantineRestoring) -> Response:
    """Bring one back, all or nothing. A refusal changes nothing: `damaged` without `salvage`, `session_exists`
    without `swap`.
    """
    found = await _find(memory, named)
    try:
        back = await quarantine.restore(memory.store, found, salvage=named.salvage, swap=named.swap)
    except CorruptSession as faulty:
        raise Problem("damaged", faulty.text) from None
    counts = {"messages_count": len(back.messages), "left_out_count": back.left_out_count}
    counts["summaries_count"] = len(back.summaries)
    return Json({**counts, "faults": [*dict.fromkeys(back.faults)], "has_lost_owner": back.has_lost_owner})


@router.post("/v1/quarantine/drop", status_code=204)
async def drop_quarantined(memory: TheMemory, named: schemas.QuarantineNamed) -> Response:
    """Delete one from quarantine for good."""
    await quarantine.drop(memory.store, await _find(memory, named))
    return Response(status_code=204)


@router.get("/v1/load", response_model=schemas.LoadDocument)
async def show_load(memory: TheMemory, service: TheService) -> Response:
    """Return the load of this server over the last ten minutes, and whether its store answers."""
    health = memory.health()
    store = {"streams_count": service.streams.streams_count, "store": health.state, "away_since_ms": health.since_ms}
    return Json(service.load.document() | store)


@router.get("/livez", response_model=schemas.Liveness)
async def live(request: Request) -> Response:
    """Return 200 while this server runs. Checks nothing else."""
    return Json({"live": True, "stopping": service_of(request).stopping.is_set()})


@router.get("/readyz", response_model=schemas.Readiness, responses={503: {"model": schemas.Readiness}})
async def ready(request: Request) -> Response:
    """Return 200 if this server can take turns: its store is readable, writable and evicts no keys.

    One of the first namespaces is enough, because a tenant whose keys fail must not take the server from the others.
    """
    service = service_of(request)
    memories = list(islice(service.memories.values(), _CHECKED_COUNT))
    checks = [await _check(memories[0])]
    if not all(checks[0]):
        checks += await asyncio.gather(*map(_check, memories[1:]))
    check = next((each for each in checks if all(each)), checks[0])
    stopping = service.stopping.is_set()
    document = {"live": True, **check._asdict(), "stopping": stopping}
    return Json(document, 200 if all(check) and not stopping else 503)


@router.get("/metrics", response_class=PlainTextResponse)
async def measured(request: Request, caller: TheCaller) -> Response:
    """Return the metrics of this server and the queues and findings of the key's namespace, for Prometheus."""
    service = service_of(request)
    report = await service.checkup(caller).scrape()
    meters = service.meters
    meters.set_streams(service.streams.streams_count, service.streams.answers_count)
    stores = [each.store for each in service.memories.values()]
    queues = {caller.namespace: None if report.depths is None else report.depths.queues()}
    text = meters.render(stores, queues, {caller.namespace: [finding for finding, _ in report.findings]})
    return Response(text, headers={"content-type": meters.content_type})


async def _succeeds(check: Awaitable[object]) -> bool:
    """True if the check passes within its time limit."""
    try:
        async with asyncio.timeout(_CHECK_S):
            await check
    except (TimeoutError, RedismemError):
        return False
    return True


async def _check(memory: Memory) -> _Check:
    # The first check closes the breaker of a store that is back; a parallel one would still be refused.
    if not await _succeeds(memory.ping()):
        return _Check(readable=False, writable=False, keeping=True)
    # Only a write shows that the store is no replica, is not full and can save to disk.
    write = memory.take("readyz", 1_000_000, 1_000_000)
    return _Check(True, *await asyncio.gather(_succeeds(write), _is_keeping(memory)))


async def _is_keeping(memory: Memory) -> bool:
    """True unless the store is known to evict keys when it is full, which could remove half a conversation."""
    try:
        async with asyncio.timeout(_CHECK_S):
            return not await servers.drop_keys(memory.store)
    except TimeoutError:
        return True
