"""The routes of operators: queues, dead sessions, whether the service is well."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import PlainTextResponse

from redismem.errors import RedismemError
from redismem.inspection import dead, servers
from redismem.inspection.depths import depths_of
from redismem.store.store import Store
from redismem.web.api import schemas
from redismem.web.api.sessions import TheMemory, TheService, service_of
from redismem.web.http.json import Json
from redismem.web.service import Service

router = APIRouter(tags=["operations"])
_LOOK_S = 1.0
_UNKNOWN = (False, True)
"""Whether a store that is away can be written, and keeps what it is given."""


@router.get("/v1/queues", response_model=schemas.Queues)
async def show_queues(memory: TheMemory) -> Response:
    """How many sessions wait, and since when the first of each queue does."""
    return Json((await depths_of(memory.store)).document())


@router.get("/v1/dead", response_model=schemas.DeadDocument)
async def list_dead(memory: TheMemory, limit: Annotated[int, Query(ge=1, le=1_000)] = 100) -> Response:
    """Sessions whose summary failed too often, the longest dead first. Their messages are all there."""
    found = await dead.list_dead(memory.store, limit)
    rows = [each.document() for each in found.sessions]
    return Json({"count": found.count, "now_ms": found.now_ms, "sessions": rows})


@router.post("/v1/dead/retry", response_model=schemas.DeadTaken)
async def retry_dead(memory: TheMemory, named: schemas.DeadNamed) -> Response:
    """Tries them again: they are overdue at once, with all their attempts."""
    return _requeued(await dead.requeue(memory.store, named.session_ids, again=True))


@router.post("/v1/dead/drop", response_model=schemas.DeadTaken)
async def drop_dead(memory: TheMemory, named: schemas.DeadNamed) -> Response:
    """Takes them off the list; nothing is tried until their next message, and nothing of them is removed."""
    return _requeued(await dead.requeue(memory.store, named.session_ids, again=False))


def _requeued(found: dead.Requeued) -> Response:
    return Json({"taken": found.taken, "not_dead": found.missing, "other_layout": found.foreign})


@router.get("/v1/load", response_model=schemas.LoadDocument)
async def show_load(memory: TheMemory, service: TheService) -> Response:
    """What this server has done over the last ten minutes, and whether its store answers."""
    health = memory.health()
    store = {"streams_count": service.streams_count, "store": health.state, "away_since_ms": health.since_ms}
    return Json(service.load.document() | store)


@router.get("/livez", response_model=schemas.Liveness)
async def live(request: Request) -> Response:
    """Whether this server runs. Looks at nothing else."""
    return Json({"live": True, "stopping": service_of(request).stopping.is_set()})


@router.get("/readyz", response_model=schemas.Readiness, responses={503: {"model": schemas.Readiness}})
async def ready(request: Request) -> Response:
    """Whether it can be sent turns: the store answers, takes what is written, and keeps it."""
    service = service_of(request)
    # A store that has just come back is found by the first look; what is asked beside that would still be refused.
    readable = await _within(_readable(service))
    writable, keeping = (
        await asyncio.gather(_within(_writable(service)), _is_keeping(service)) if readable else _UNKNOWN
    )
    stopping = service.stopping.is_set()
    document = {"live": True, "readable": readable, "writable": writable, "keeping": keeping, "stopping": stopping}
    return Json(document, 200 if readable and writable and keeping and not stopping else 503)


@router.get("/metrics", response_class=PlainTextResponse)
async def measured(request: Request, memory: TheMemory) -> Response:
    """For Prometheus: the numbers of this server, and the queues of the key's namespace."""
    service = service_of(request)
    try:
        async with asyncio.timeout(_LOOK_S):
            depths = await depths_of(memory.store)
    except (TimeoutError, RedismemError):
        depths = None
    stores = [each.store for each in service.memories.values()]
    calls_count = sum(store.calls_count for store in stores)
    backlog_count = sum(store.health().backlog_message_count for store in stores)
    text = service.meters.looked(depths, calls_count, service.streams_count, _away_s(stores), backlog_count)
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


def _away_s(stores: Sequence[Store]) -> dict[str, float]:
    """How long what does not answer has not, by its place. All together, whose place is "", is always among it."""
    found = {"": 0.0}
    for breaker in (breaker for store in stores for breaker in store.away_breakers()):
        found[breaker.place] = max(found.get(breaker.place, 0.0), breaker.away_s())
    return found


async def _within(look: Awaitable[None]) -> bool:
    """Whether it goes well, and soon."""
    try:
        async with asyncio.timeout(_LOOK_S):
            await look
    except (TimeoutError, RedismemError):
        return False
    return True


async def _readable(service: Service) -> None:
    await next(iter(service.memories.values())).ping()


async def _is_keeping(service: Service) -> bool:
    """False if it is known to drop single keys when it is full: half a conversation may go."""
    try:
        async with asyncio.timeout(_LOOK_S):
            return not await servers.drop_keys(next(iter(service.memories.values())).store)
    except TimeoutError:
        return True


async def _writable(service: Service) -> None:
    """Writes, as nothing else tells: a store may be a replica, full, or unable to save."""
    await next(iter(service.memories.values())).take("readyz", 1_000_000, 1_000_000)
