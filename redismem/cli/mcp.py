"""`redismem serve --mcp`: serve the memory to models, over the Model Context Protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from redismem.cli import serving
from redismem.cli.logs import logs_on_stderr
from redismem.cli.place import address_of, safe_url, stop_for
from redismem.cli.serving import ServeOptions
from redismem.cli.stopping import hangup_signals, stop_signals
from redismem.cli.streams import complain
from redismem.cli.terminal import Stop
from redismem.errors import StoreUnavailable
from redismem.memory.memory import Memory
from redismem.settings.extras import require_extra
from redismem.settings.settings import Settings
from redismem.transport.connect import EMBEDDED

_OF_THE_PAGE = ("demo", "cors_origin", "project", "answer_tokens", "recall", "recall_scope")


async def serve(options: ServeOptions, url: str | None, namespace: str, *, as_json: bool) -> int:
    """Serve models over stdin and stdout, or over HTTP, until the client or a signal ends it.

    Raises:
        Stop: An option is for the other kind of server, or Redis does not answer.
    """
    if refused := serving.changed_options(options, *_OF_THE_PAGE):
        raise Stop(f"{refused[0]} is for the page and the chat, not for --mcp", 2)
    require_extra("mcp", "redismem serve --mcp")
    if options.http:
        require_extra("server", "redismem serve --mcp --http")
    settings = Settings()
    address = address_of(url, settings)
    is_embedded = address.lower() == EMBEDDED
    has_workers = is_embedded if options.workers is None else options.workers
    place = "embedded" if is_embedded else safe_url(address)

    def connect(namespace: str) -> Memory:
        return Memory.connect(address, namespace=namespace, settings=settings, workers=has_workers)

    with logs_on_stderr(as_json=as_json), stop_signals() as stopping, hangup_signals() as hangup:
        try:
            if options.http:
                await _serve_http(options, namespace, connect, place, stopping, hangup)
            else:
                await _serve_stdio(options, namespace, connect, place, stopping)
        except StoreUnavailable as error:
            raise stop_for(place, error) from None
    return 0


async def _serve_stdio(
    options: ServeOptions, namespace: str, connect: Callable[[str], Memory], place: str, stopping: asyncio.Event
) -> None:
    from redismem.mcp import create_server
    from redismem.mcp.stdio import serve_stdio

    if refused := serving.changed_options(options, "host", "port", "resumable"):
        raise Stop(f"{refused[0]} needs --http: without it a client speaks over stdin and stdout", 2)
    async with connect(namespace) as memory:
        complain(f"speaks MCP on stdin and stdout (store: {place}, namespace: {namespace})")
        if place == "embedded":
            complain("the embedded store ends with this process, and all memory with it; see --url")
        await serving.warn_of_missing_workers({namespace: memory})
        made = create_server(memory, hidden_params=_hidden(options.slots), owner=options.owner)
        await serve_stdio(made, stopping)


async def _serve_http(
    options: ServeOptions,
    namespace: str,
    connect: Callable[[str], Memory],
    place: str,
    stopping: asyncio.Event,
    hangup: asyncio.Event,
) -> None:
    from redismem.mcp.http import PATH, create_app, serve_http
    from redismem.web.server import listen
    from redismem.web.service import Limits, Service, opened

    if options.owner is not None:
        raise Stop("--owner is not for --http: several people may reach the server", 2)
    host = options.host
    access = serving.load_access(options.keys, options.keys_file, namespace, host)
    hidden = _hidden(options.slots)
    serving.raise_file_limit()
    async with opened(access.namespaces, connect) as memories:
        limits = Limits(rate_per_s=options.rate, rate_burst_count=options.burst)
        service = Service(memories, access, limits, embedded=place == "embedded")
        with listen(host, 8_081 if options.port is None else options.port) as listening:
            shown = f"[{host}]" if ":" in host else host
            at = f"http://{shown}:{listening.getsockname()[1]}{PATH}"
            print(f"redismem speaks MCP at {at} (store: {place})", flush=True)
            if access.is_open:
                complain("no keys: every user of this machine has full access; see --keys-file")
            await serving.warn_of_missing_workers(memories)
            async with serving.following(options.keys_file, service, memories, hangup):
                made = create_app(service, hidden, host, resumable=options.resumable)
                await serve_http(service, made, listening, stopping, options.stop_s)
            print("redismem has stopped", flush=True)


def _hidden(slots: Path | None) -> frozenset[str]:
    from redismem.slots import ASKED, Slots

    return frozenset((ASKED, *(() if slots is None else Slots.from_toml(serving.read_text(slots)).sensitive)))
