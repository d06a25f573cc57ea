"""`redismem serve`: serve the memory over HTTP until a signal stops it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ipaddress
import re
import resource
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from redismem.cli.demo import filling
from redismem.cli.logs import logs_on_stderr
from redismem.cli.options import JsonLogs, flag, within
from redismem.cli.place import address_of, safe_url, stop_for
from redismem.cli.stopping import hangup_signals, stop_signals
from redismem.cli.streams import complain
from redismem.cli.terminal import Namespace, Stop, Url
from redismem.errors import RedismemError, StoreUnavailable
from redismem.inspection.doctor import has_workers
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

Host = Annotated[str, Parameter(help="The address to listen on; without keys only a loopback address.")]
Port = Annotated[int, within(0, 65_535, "The port; 0 picks a free one.")]
Keys = Annotated[
    str | None,
    Parameter(
        env_var="REDISMEM_SERVER_KEYS",
        help="The keys, one per line as `redismem key` prints them; `;` separates keys too.",
    ),
]
KeysFile = Annotated[
    str | None,
    Parameter(
        env_var="REDISMEM_SERVER_KEYS_FILE",
        help="A file with the keys, one per line; read again when it changes, and on SIGHUP. [default: no keys]",
    ),
]
Rate = Annotated[
    float | None,
    within(
        0.001,
        1_000_000,
        "Requests per second and key, over all servers. [default: no limit]",
        env_var="REDISMEM_SERVER_RATE",
    ),
]
Burst = Annotated[
    int, within(1, 1_000_000, "Requests that a key may send in one burst.", env_var="REDISMEM_SERVER_BURST")
]
Origins = Annotated[
    tuple[str, ...],
    flag("An origin whose pages may send requests, such as https://shop.example; repeatable. [default: none]"),
]
Scopes = Annotated[tuple[str, ...], flag("read, write or admin; repeatable. [default: read and write]")]
Workers = Annotated[
    bool | None,
    Parameter(help="Also summarise and evict in this server. [default: only with the embedded store and --demo]"),
]
SlotsFile = Annotated[Path | None, Parameter(help="A TOML file with the slots that the chat fills: see docs/http.md.")]
ProjectName = Annotated[
    str | None, Parameter(help="The project in the chat's context, unless a message names another.")
]
AnswerTokens = Annotated[
    int, within(16, 1_000_000, "Limit of an answer of the chat's model in tokens, reasoning included.")
]
RecallTokens = Annotated[
    int, within(0, 100_000, "Tokens of earlier messages that each answer of the chat recalls; 0 for none.")
]
RecallScope = Annotated[
    Literal["session", "owner"],
    Parameter(help="What the chat's answers recall for keys of one owner: this session, or all of the owner's."),
]
OwnerOfKey = Annotated[str | None, Parameter(help="The key reaches the sessions of this owner alone.")]
Demo = Annotated[
    bool, flag("Fill the namespace redismem-demo with conversations and a project, and serve that namespace.")
]
StopS = Annotated[float, within(1, 600, "Seconds to finish open requests, and the work of --workers.")]
_FILES_COUNT = 65_536
_ORIGIN = re.compile(r"(https?)://(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """The options of a server."""

    demo: Demo = False
    host: Host = "127.0.0.1"
    port: Port = 8080
    keys: Keys = None
    keys_file: KeysFile = None
    rate: Rate = None
    burst: Burst = 20
    cors_origin: Origins = ()
    workers: Workers = None
    slots: SlotsFile = None
    project: ProjectName = None
    answer_tokens: AnswerTokens = 4_096
    recall: RecallTokens = 700
    recall_scope: RecallScope = "session"
    stop_s: StopS = 10


async def serve(
    *,
    options: Annotated[ServeOptions, Parameter(name="*")] = ServeOptions(),
    url: Url = None,
    namespace: Namespace = "default",
    as_json: JsonLogs = False,
) -> int:
    """Serve the memory over HTTP, until SIGTERM or SIGINT.

    Without keys the server listens only on a loopback address and gives every local user access to one namespace. With
    keys, each key belongs to a namespace. On a signal it accepts no new requests and finishes the open ones. On SIGHUP
    it reads the file of keys at once.

    Logs go to stderr, one line per event, never message text. Exit code: 0 stopped by a signal, else 1.
    """
    require_extra("server", "redismem serve")
    from redismem.web.metrics import prometheus

    _check_origins(options.cors_origin)
    if options.demo:
        namespace = _check_demo(options, namespace)
    access = load_access(options.keys, options.keys_file, namespace, options.host)
    if options.recall_scope == "owner" and not access.has_owners:
        raise Stop("--recall-scope owner needs a key of one owner: see redismem key --owner", 2)
    settings = Settings()
    address = address_of(url, settings)
    embedded = address.lower() == EMBEDDED
    measured = prometheus.Meters()
    has_workers = embedded or options.demo if options.workers is None else options.workers
    connect = _connector(address, settings, measured, options.stop_s if has_workers else None)
    raise_file_limit()
    place = "embedded" if embedded else safe_url(address)
    with logs_on_stderr(as_json=as_json), stop_signals() as stopping, hangup_signals() as hangup:
        try:
            await _serve(options, access, measured, connect, place, stopping, hangup)
        except StoreUnavailable as error:
            raise stop_for(place, error) from None
    return 0


async def _serve(
    options: ServeOptions,
    access: Access,
    meters: Meters,
    connect: Callable[[str], Memory],
    place: str,
    stopping: asyncio.Event,
    hangup: asyncio.Event,
) -> None:
    from redismem.web.server import listen
    from redismem.web.server import serve as serve_until
    from redismem.web.service import opened

    # Modules loaded by now are never garbage: freezing them spares every turn their share of the collections.
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)
    async with opened(access.namespaces, connect) as memories:
        if options.demo:
            await filling.fill(memories[filling.NAMESPACE])
        service = _open_service(options, access, memories, meters)
        service.embedded = place == "embedded"
        with listen(options.host, options.port) as listening:
            host = f"[{options.host}]" if ":" in options.host else options.host
            at = f"http://{host}:{listening.getsockname()[1]}"
            more = f"\na conversation with a summary: {at}/#/s/{filling.CHAT}" if options.demo else ""
            print(f"redismem listens on {at} (store: {place}); open it in a browser for the page{more}", flush=True)
            if access.is_open:
                complain("no keys: every user of this machine has full access; see --keys-file")
            await warn_of_missing_workers(memories)
            async with following(options.keys_file, service, memories, hangup):
                await serve_until(service, listening, stopping, options.stop_s)
            print("redismem has stopped", flush=True)


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


@contextlib.asynccontextmanager
async def following(
    path: str | None, service: Service, memories: Memories, hangup: asyncio.Event
) -> AsyncIterator[None]:
    """Follow the file of keys while the block runs. Without a file, warn that SIGHUP changes nothing."""
    from redismem.web.key_file import KeyFile, warn_of_hangups

    keys_file = Path(path) if path else None
    following = asyncio.create_task(
        warn_of_hangups(hangup) if keys_file is None else KeyFile(service, keys_file, memories.open).follow(hangup)
    )
    try:
        yield
    finally:
        following.cancel()
        await asyncio.wait((following,))


def raise_file_limit() -> None:
    """Allow as many connections as the system lets this user open, because the usual soft limit of 1,024 is too low.

    At the limit the server accepts nobody, whatever share of its streams a key has.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES_COUNT if hard == resource.RLIM_INFINITY else min(hard, _FILES_COUNT)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


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


async def warn_of_missing_workers(memories: Mapping[str, Memory]) -> None:
    """Warn of namespaces without a worker. Prints nothing if Redis does not answer."""
    unattended = []
    for namespace, memory in memories.items():
        with contextlib.suppress(RedismemError):
            if memory.workers is None and not await has_workers(memory.store):
                unattended.append(namespace)
    if unattended:
        more = f" and {len(unattended) - 3} more" if len(unattended) > 3 else ""
        names = ", ".join(unattended[:3]) + more
        complain(
            f"no worker runs for {names}: nothing is summarised or evicted; start `redismem worker` on the same Redis "
            "and namespace, or serve with --workers"
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


def load_access(keys: str | None, keys_file: str | None, namespace: str, host: str) -> Access:
    """Return the keys of a server that listens on this host. Without keys, it serves this namespace.

    Raises:
        InvalidSettings: A line of the keys is malformed.
        Stop: The keys cannot be read, or there are none and the host is not a loopback address.
    """
    from redismem.web.access import Access

    if keys and keys_file:
        raise Stop("give keys or a key file, not both", 2)
    if keys_file == "" and not keys:
        raise Stop("REDISMEM_SERVER_KEYS_FILE or --keys-file is empty: it must name a file", 2)
    if keys_file:
        keys = read_text(Path(keys_file))
    access = Access.of(keys or "", namespace)
    if access.is_open and keys is not None:
        raise Stop(f"{keys_file or 'REDISMEM_SERVER_KEYS or --keys'} contains no key", 2)
    if namespace not in ("default", *access.namespaces):
        complain(
            f"--namespace {namespace} is ignored: the server serves the namespaces of its keys, and no key has this one"
        )
    if access.is_open and not _is_loopback(host):
        raise Stop(f"without keys a server listens only on loopback, not on {host}: see --keys-file", 2)
    return access


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


def read_text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeError):
        raise Stop(f"cannot read {path}", 2) from None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def key(
    name: Annotated[str, Parameter(help="The name of the key in logs and limits.")],
    *,
    namespace: Namespace = "default",
    scope: Scopes = ("read", "write"),
    owner: OwnerOfKey = None,
) -> int:
    """Create a key: prints the key, which is shown only once, and below it the line for the key list."""
    from redismem.web.access import new_key

    secret, line = new_key(name, namespace, scope, owner)
    print(secret)
    print(line)
    return 0
