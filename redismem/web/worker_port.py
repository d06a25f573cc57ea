"""The port of `redismem worker`: `/livez` for a supervisor and `/metrics` for Prometheus. It needs no key."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol

import uvicorn
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, Router

from redismem.context.info import Queues
from redismem.inspection.checkup import Checkup
from redismem.inspection.findings import Finding
from redismem.memory.memory import Memory
from redismem.metrics.prometheus import Metrics
from redismem.web.http.failures import contain
from redismem.web.http.protocol import LimitedProtocol
from redismem.web.server import QuietServer, listen

_HEADERS = {"cache-control": "no-store"}


class Ticker(Protocol):
    """A scheduler, for `/livez`."""

    @property
    def is_ticking(self) -> bool:
        """True unless its ticks have stopped."""


class WorkerPort:
    """The ASGI application of the port."""

    def __init__(self, memories: Sequence[Memory], metrics: Metrics, tickers: Sequence[Ticker]) -> None:
        """Make the application. `/livez` fails once one of `tickers`, the schedulers that run, does not tick."""
        self._tickers = tickers
        self._metrics = metrics
        self._stores = [memory.store for memory in memories]
        self._checkups: Mapping[str, Checkup] = {store.keys.namespace: Checkup(store) for store in self._stores}
        routes = [Route("/livez", self._livez), Route("/metrics", self._show_metrics)]
        self.app = contain(Router(routes, redirect_slashes=False), "/livez", "/metrics")

    async def _livez(self, request: Request) -> Response:
        del request
        is_live = all(ticker.is_ticking for ticker in self._tickers)
        return JSONResponse({"live": is_live}, 200 if is_live else 503, _HEADERS)

    async def _show_metrics(self, request: Request) -> Response:
        del request
        return Response(await self._measure(), headers=_HEADERS | {"content-type": self._metrics.content_type})

    async def _measure(self) -> bytes:
        reports = await asyncio.gather(*(checkup.scrape() for checkup in self._checkups.values()))
        queues: dict[str, Queues | None] = {}
        findings: dict[str, list[Finding]] = {}
        for namespace, report in zip(self._checkups, reports, strict=True):
            queues[namespace] = None if report.depths is None else report.depths.queues()
            findings[namespace] = [finding for finding, _ in report.findings]
        return self._metrics.render(self._stores, queues, findings)

    async def aclose(self) -> None:
        """End the examinations in the background."""
        for checkup in self._checkups.values():
            await checkup.aclose()


@contextlib.asynccontextmanager
async def serve_port(port: WorkerPort, host: str, number: int) -> AsyncIterator[str]:
    """Answer requests at this address during the block, and yield the address. Port 0 means any free port.

    Raises:
        InvalidSettings: The address does not exist, or the port is taken.
    """
    with listen(host, number) as listening:
        config = uvicorn.Config(
            port.app,
            http=LimitedProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=5,
            timeout_graceful_shutdown=1,
        )
        server = QuietServer(config)
        serving = asyncio.create_task(server.serve([listening]))
        shown = f"[{host}]" if ":" in host else host
        try:
            yield f"http://{shown}:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            await serving
            await port.aclose()
