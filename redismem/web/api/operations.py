"""The routes for operators: queues, dead sessions, load, health and metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from itertools import islice
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import PlainTextResponse

from redismem.errors import RedismemError
from redismem.inspection import dead, servers
from redismem.memory.memory import Memory
from redismem.store.depths import depths_of
from redismem.web.api import operations_schemas as schemas
from redismem.web.api.sessions import TheCaller, TheMemory, TheService, service_of
from redismem.web.http.json import Json

router = APIRouter(tags=["operations"])
_CHECK_S = 1.0
_CHECKED_COUNT = 8


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
