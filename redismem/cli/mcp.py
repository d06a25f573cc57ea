"""`redismem mcp`: serve the memory to models, over the Model Context Protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from redismem.cli import serve
from redismem.cli.logs import logs_on_stderr
from redismem.cli.options import JsonLogs, flag, within
from redismem.cli.place import address_of, safe_url, stop_for
from redismem.cli.stopping import hangup_signals, stop_signals
from redismem.cli.streams import complain
from redismem.cli.terminal import Namespace, Stop, Url
from redismem.errors import StoreUnavailable
from redismem.memory.memory import Memory
from redismem.settings.extras import require_extra
from redismem.settings.settings import Settings
from redismem.transport.connect import EMBEDDED

Http = Annotated[bool, flag("Serve over streamable HTTP instead of stdin and stdout.")]
Host = Annotated[
    str | None, Parameter(help="With --http: the address to listen on. [default: 127.0.0.1, the only one without keys]")
]
Port = Annotated[int | None, within(0, 65_535, "With --http: the port; 0 picks a free one. [default: 8081]")]
Resumable = Annotated[
    bool, flag("With --http: keep the events of streams in Redis, so that a client whose stream broke gets the rest.")
]
Workers = Annotated[
    bool | None, Parameter(help="Also summarise and evict in this process. [default: only with the embedded store]")
]
SlotsFile = Annotated[
    Path | None, Parameter(help="A TOML file with slots, whose sensitive values no client may read: see docs/http.md.")
]

Owner = Annotated[
    str | None,
    Parameter(help="Without --http: the person whom the sessions that the client begins belong to, see `forget`."),
]


@dataclass(frozen=True, slots=True)
class McpOptions:
    """The options of an MCP server."""

    http: Http = False
    host: Host = None
    port: Port = None
    keys: serve.Keys = None
    keys_file: serve.KeysFile = None
    resumable: Resumable = False
    rate: serve.Rate = None
    burst: serve.Burst = 20
    workers: Workers = None
    slots: SlotsFile = None
    owner: Owner = None
    stop_s: serve.StopS = 10


async def mcp(
    *,
    options: Annotated[McpOptions, Parameter(name="*")] = McpOptions(),
    url: Url = None,
    namespace: Namespace = "default",
    as_json: JsonLogs = False,
) -> int:
    """Serve the memory to models over the Model Context Protocol, as tools for sessions and projects.

    A client starts it as a process and speaks over stdin and stdout; it ends when the client closes stdin. The process
    reaches one namespace. With --http it listens at /mcp; without keys only on a loopback address, with keys each key
    reaches the namespace that it belongs to.

    Logs go to stderr, never message text. Exit code: 0 ended by the client or a signal, else 1.
    """
    require_extra("mcp", "redismem mcp")
    if options.http:
        require_extra("server", "redismem mcp --http")
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
    options: McpOptions, namespace: str, connect: Callable[[str], Memory], place: str, stopping: asyncio.Event
) -> None:
    from redismem.mcp import create_server
    from redismem.mcp.stdio import serve_stdio

    if options.host is not None or options.port is not None or options.resumable:
        raise Stop("--host, --port and --resumable need --http: without it a client speaks over stdin and stdout", 2)
    async with connect(namespace) as memory:
        complain(f"speaks MCP on stdin and stdout (store: {place}, namespace: {namespace})")
        if place == "embedded":
            complain("the embedded store ends with this process, and all memory with it; see --url")
        await serve.warn_of_missing_workers({namespace: memory})
        made = create_server(memory, hidden_params=_hidden(options.slots), owner=options.owner)
        await serve_stdio(made, stopping)


async def _serve_http(
    options: McpOptions,
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
    host = options.host or "127.0.0.1"
    access = serve.load_access(options.keys, options.keys_file, namespace, host)
    hidden = _hidden(options.slots)
    serve.raise_file_limit()
    async with opened(access.namespaces, connect) as memories:
        limits = Limits(rate_per_s=options.rate, rate_burst_count=options.burst)
        service = Service(memories, access, limits, embedded=place == "embedded")
        with listen(host, 8_081 if options.port is None else options.port) as listening:
            shown = f"[{host}]" if ":" in host else host
            at = f"http://{shown}:{listening.getsockname()[1]}{PATH}"
            print(f"redismem speaks MCP at {at} (store: {place})", flush=True)
            if access.is_open:
                complain("no keys: every user of this machine has full access; see --keys-file")
            await serve.warn_of_missing_workers(memories)
            async with serve.following(options.keys_file, service, memories, hangup):
                made = create_app(service, hidden, host, resumable=options.resumable)
                await serve_http(service, made, listening, stopping, options.stop_s)
            print("redismem has stopped", flush=True)


def _hidden(slots: Path | None) -> frozenset[str]:
    from redismem.slots import ASKED, Slots

    return frozenset((ASKED, *(() if slots is None else Slots.from_toml(serve.read_text(slots)).sensitive)))
