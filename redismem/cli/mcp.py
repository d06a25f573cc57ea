"""`redismem serve --mcp`: serve the memory to models, over the Model Context Protocol."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from redismem.cli import serving
from redismem.cli.serving import Running, ServeOptions
from redismem.cli.streams import complain
from redismem.cli.terminal import Stop
from redismem.memory.memory import Memory
from redismem.settings.extras import require_extra

_OF_THE_PAGE = ("demo", "cors_origin", "project", "answer_tokens", "recall", "recall_scope")


async def serve(options: ServeOptions, namespace: str, here: Running) -> None:
    """Serve models over stdin and stdout, or over HTTP, until the client or a signal ends it.

    Raises:
        Stop: An option is for the other kind of server.
    """
    if refused := serving.changed_options(options, *_OF_THE_PAGE):
        raise Stop(f"{refused[0]} is for the page and the chat, not for --mcp", 2)
    require_extra("mcp", "redismem serve --mcp")
    if options.http:
        require_extra("server", "redismem serve --mcp --http")
    has_workers = here.embedded if options.workers is None else options.workers

    def connect(namespace: str) -> Memory:
        return Memory.connect(here.address, namespace=namespace, settings=here.settings, workers=has_workers)

    await (_serve_http if options.http else _serve_stdio)(options, namespace, connect, here)


async def _serve_stdio(options: ServeOptions, namespace: str, connect: Callable[[str], Memory], here: Running) -> None:
    from redismem.mcp import create_server
    from redismem.mcp.stdio import serve_stdio

    if refused := serving.changed_options(options, "host", "port", "resumable"):
        raise Stop(f"{refused[0]} needs --http: without it a client speaks over stdin and stdout", 2)
    async with connect(namespace) as memory:
        complain(f"speaks MCP on stdin and stdout (store: {here.place}, namespace: {namespace})")
        if here.embedded:
            complain("the embedded store ends with this process, and all memory with it; see --url")
        await serving.warn_of_missing_workers({namespace: memory})
        made = create_server(memory, hidden_params=_hidden(options.slots), owner=options.owner)
        await serve_stdio(made, here.stopping)


async def _serve_http(options: ServeOptions, namespace: str, connect: Callable[[str], Memory], here: Running) -> None:
    from redismem.mcp.http import PATH, create_app, serve_http
    from redismem.web.service import Limits, Service, opened

    if options.owner is not None:
        raise Stop("--owner is not for --http: several people may reach the server", 2)
    access = serving.load_access(options.keys, options.keys_file, namespace, options.host)
    hidden = _hidden(options.slots)
    serving.raise_file_limit()

    def words(at: str) -> str:
        return f"redismem speaks MCP at {at}{PATH} (store: {here.place})"

    async with opened(access.namespaces, connect) as memories:
        limits = Limits(rate_per_s=options.rate, rate_burst_count=options.burst)
        service = Service(memories, access, limits, embedded=here.embedded)
        async with serving.listening(options, service, memories, here, 8_081, words) as port:
            made = create_app(service, hidden, options.host, resumable=options.resumable)
            await serve_http(service, made, port, here.stopping, options.stop_s)


def _hidden(slots: Path | None) -> frozenset[str]:
    from redismem.slots import ASKED, Slots

    return frozenset((ASKED, *(() if slots is None else Slots.from_toml(serving.read_text(slots)).sensitive)))
