"""`redismem serve`: serve the memory over HTTP until a signal stops it; with `--mcp` to models."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from redismem.cli.demo import filling
from redismem.cli.options import JsonLogs, Namespace, Url
from redismem.cli.serving import (
    DEFAULT,
    Running,
    ServeOptions,
    changed_options,
    listening,
    load_access,
    raise_file_limit,
    read_text,
    running,
)
from redismem.cli.streams import complain
from redismem.cli.terminal import Stop
from redismem.memory.memory import Memory
from redismem.settings.extras import require_extra
from redismem.settings.settings import Settings
from redismem.transport.connect import EMBEDDED

if TYPE_CHECKING:
    from redismem.models.streaming import StreamingModel
    from redismem.store.store import Store
    from redismem.web.access import Access
    from redismem.web.chat.chat import Chat
    from redismem.web.metrics.prometheus import Meters
    from redismem.web.service import Memories, Service
    from redismem.workers import keeper

_ORIGIN = re.compile(r"(https?)://(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")


async def serve(
    *,
    options: Annotated[ServeOptions, Parameter(name="*")] = DEFAULT,
    url: Url = None,
    namespace: Namespace = "default",
    as_json: JsonLogs = False,
) -> int:
    """Serve the memory over HTTP, with a page; `--mcp`: to models.

    Runs until SIGTERM or SIGINT. Without keys the server listens only on a loopback address and gives every local user
    access to one namespace. With keys, each key belongs to a namespace. On a signal it accepts no new requests and
    finishes the open ones. On SIGHUP it reads the file of keys at once.

    With `--mcp` a client of the Model Context Protocol starts it as a process and speaks over stdin and stdout; it ends
    when the client closes stdin. It offers tools for the sessions and projects of one namespace. With `--mcp --http` it
    listens at /mcp, with the same rules for keys.

    Logs go to stderr, one line per event, never message text.
    """
    if options.mcp:
        from redismem.cli import mcp

        with running(url, as_json=as_json) as here:
            await mcp.serve(options, namespace, here)
        return 0
    if refused := changed_options(options, "http", "resumable", "owner"):
        raise Stop(f"{refused[0]} needs --mcp", 2)
    require_extra("server", "redismem serve")
    from redismem.web.metrics import prometheus

    _check_origins(options.cors_origin)
    if options.demo:
        namespace = _check_demo(options, namespace)
    access = load_access(options.keys, options.keys_file, namespace, options.host)
    if options.recall_scope == "owner" and not access.has_owners:
        raise Stop("--recall-scope owner needs a key of one owner: see `redismem key NAME --owner ID`", 2)
    measured = prometheus.Meters()
    with running(url, as_json=as_json) as here:
        has_workers = here.embedded or options.demo if options.workers is None else options.workers
        connect = _connector(here.address, here.settings, measured, options.stop_s if has_workers else None)
        raise_file_limit()
        await _serve(options, access, measured, connect, here)
    return 0


async def _serve(
    options: ServeOptions, access: Access, meters: Meters, connect: Callable[[str], Memory], here: Running
) -> None:
    from redismem.web.server import serve as serve_until
    from redismem.web.service import opened

    # Modules loaded by now are never garbage: freezing them spares every turn their share of the collections.
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)

    def words(at: str) -> str:
        more = f"\na conversation with a summary: {at}/#/s/{filling.CHAT}" if options.demo else ""
        return f"redismem listens on {at} (store: {here.place}); open it in a browser for the page{more}"

    async with opened(access.namespaces, connect) as memories:
        if options.demo:
            await filling.fill(memories[filling.NAMESPACE])
        service = _open_service(options, access, memories, meters)
        service.embedded = here.embedded
        async with listening(options, service, memories, here, 8_080, words) as port:
            await serve_until(service, port, here.stopping, options.stop_s)


def _open_service(options: ServeOptions, access: Access, memories: Memories, meters: Meters) -> Service:
    from redismem.web.service import Limits, Service

    if options.project is not None:  # refuse an invalid name at start, not at the first request
        next(iter(memories.values())).project(options.project)
    return Service(
        memories,
        access,
        Limits(rate_per_s=options.rate, rate_burst_count=options.burst),
        chat=_open_chat(options, Settings()),
        cors_origins=options.cors_origin,
        meters=meters,
    )


def _open_chat(options: ServeOptions, settings: Settings) -> Chat:
    from redismem.slots import Slots
    from redismem.web.chat.chat import Chat

    slots = filling.demo_slots() if options.demo else None
    return Chat(
        _open_model(settings),
        slots if options.slots is None else Slots.from_toml(read_text(options.slots)),
        max_tokens=options.answer_tokens,
        project=options.project or (filling.PROJECT if options.demo else None),
        alternate=settings.chat_alternate,
        instruction=settings.chat_instruction,
        recall=options.recall,
        recall_scope=options.recall_scope,
    )


def _connector(
    address: str, settings: Settings, meters: Meters, workers_stop_s: float | None
) -> Callable[[str], Memory]:
    """Return a function that connects the memory of a namespace, with workers if they have a time to stop."""
    from redismem.web.metrics.prometheus import listener

    workers: bool | Callable[[Store], keeper.Workers] = False
    if workers_stop_s is not None:
        from redismem.workers.scheduler import Scheduler

        # As connect(workers=True) makes them, but for the time to stop.
        workers = partial(Scheduler, stop_s=workers_stop_s, in_child=address.lower() != EMBEDDED)

    def connect(namespace: str) -> Memory:
        return Memory.connect(
            address, namespace=namespace, settings=settings, workers=workers, on_event=listener(meters)
        )

    return connect


def _check_demo(options: ServeOptions, namespace: str) -> str:
    """Return the namespace of the demo. The namespace of the environment is left alone. Raises Stop for keys."""
    if options.keys or options.keys_file:
        raise Stop("--demo serves one namespace of its own, without keys", 2)
    if namespace not in ("default", filling.NAMESPACE):
        complain(f"--demo serves the namespace {filling.NAMESPACE}, not {namespace}")
    return filling.NAMESPACE


def _check_origins(origins: tuple[str, ...]) -> None:
    """Raise Stop for an origin in a form that no browser sends, because no request would ever match it."""
    for origin in origins:
        parts = _ORIGIN.fullmatch(origin)
        if parts is None or (parts[1], parts[2]) in (("http", ":80"), ("https", ":443")):
            raise Stop(
                "--cors-origin takes http:// or https://, a lowercase host and a port unless it is the default one; no "
                "path: https://shop.example",
                2,
            )


def _open_model(settings: Settings) -> StreamingModel | None:
    """Return the summary model, which also answers the chat; `None` if no model is set. Raises InvalidSettings."""
    if settings.model_provider == "extractive":
        return None
    from redismem.models.streaming import open_streaming

    key = settings.model_api_key
    return open_streaming(
        settings.model_provider,
        settings.model or "",
        None if key is None else key.get_secret_value(),
        base_url=settings.model_base_url,
        allow_http=settings.model_allow_http,
        max_tokens_field=settings.model_max_tokens_field,
    )
