"""`redismem serve`: the memory over HTTP, until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter, validators

from redismem.cli.logs import logs_on_stderr
from redismem.cli.place import address_of, refused, safe_url
from redismem.cli.stopping import stop_signals
from redismem.cli.terminal import Namespace, Stop, Url, complain
from redismem.errors import RedismemError, StoreUnavailable
from redismem.inspection.doctor import is_looked_after
from redismem.memory import Memory
from redismem.settings.settings import Settings
from redismem.transport.connect import EMBEDDED

if TYPE_CHECKING:
    from redismem.models.streaming import StreamingModel
    from redismem.web.access import Access
    from redismem.web.metrics.prometheus import Meters

Host = Annotated[str, Parameter(help="Where to listen. Without keys a loopback address alone.")]
Port = Annotated[int, Parameter(validator=validators.Number(gte=0, lte=65_535), help="0: a free one.")]
Keys = Annotated[
    str | None,
    Parameter(env_var="REDISMEM_SERVER_KEYS", help="The keys, a line each as `redismem key` prints it; `;` ends one."),
]
KeysFile = Annotated[
    str | None, Parameter(env_var="REDISMEM_SERVER_KEYS_FILE", help="A file of such lines. [default: no keys]")
]
Rate = Annotated[
    float | None,
    Parameter(
        env_var="REDISMEM_SERVER_RATE",
        validator=validators.Number(gte=0.001, lte=1_000_000),
        help="Requests of one key a second, all servers together. [default: no limit]",
    ),
]
Burst = Annotated[
    int, Parameter(env_var="REDISMEM_SERVER_BURST", validator=validators.Number(gte=1, lte=1_000_000), help="At once.")
]
Origins = Annotated[
    tuple[str, ...],
    Parameter(negative=(), help="An origin whose pages may ask, such as https://shop.example; repeatable."),
]
Workers = Annotated[
    bool | None, Parameter(help="Summarise and evict in this server too. [default: with the embedded store]")
]
SlotsFile = Annotated[Path | None, Parameter(help="A TOML file of what the chat asks for: see docs/http.md.")]
ProjectName = Annotated[
    str | None, Parameter(help="The project that the chat knows about, unless a message names another.")
]
AnswerTokens = Annotated[
    int,
    Parameter(
        validator=validators.Number(gte=16, lte=1_000_000),
        help="The longest answer of the chat's model, in tokens, its reasoning among them.",
    ),
]
StopS = Annotated[
    float, Parameter(validator=validators.Number(gte=1, lte=600), help="Seconds that what is in hand may take to end.")
]
JsonLogs = Annotated[bool, Parameter(name="--json", negative=(), show_default=False, help="Logs as JSON.")]
_ORIGIN = re.compile(r"(https?)://(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")


@dataclass(frozen=True, slots=True)
class Options:
    """How a server is set up."""

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
    stop_s: StopS = 10


async def serve(
    options: Annotated[Options, Parameter(name="*")] = Options(),
    *,
    url: Url = None,
    namespace: Namespace = "default",
    as_json: JsonLogs = False,
) -> int:
    """Serve the memory over HTTP, until SIGTERM or SIGINT.

    Without keys it listens on a loopback address alone, and serves one namespace to everybody there. With keys each of
    them is bound to a namespace. Told to stop, it takes up nothing more and ends what is in hand.

    Logs go to stderr, a line each: never a text. Exit code: 0 it was told to stop, else 1.
    """
    try:
        from redismem.web.metrics import prometheus
    except ImportError:
        raise Stop("a server needs more packages: pip install 'redismem[server]'", 2) from None
    _check_origins(options.cors_origin)
    access = _access(options, namespace)
    if access.is_open and not _is_loopback(options.host):
        raise Stop(f"without keys a server listens on loopback alone, not on {options.host}: see --keys-file", 2)
    settings = Settings()
    address = address_of(url, settings)
    embedded = address.lower() == EMBEDDED
    measured = prometheus.Meters()
    connect = _connect(address, settings, embedded if options.workers is None else options.workers, measured)
    place = "embedded" if embedded else safe_url(address)
    with logs_on_stderr(as_json=as_json), stop_signals() as told:
        try:
            await _serve(options, access, measured, connect, place, told)
        except StoreUnavailable as error:
            raise refused(place, error) from None
    return 0


async def _serve(
    options: Options, access: Access, meters: Meters, connect: Callable[[str], Memory], place: str, told: asyncio.Event
) -> None:
    from redismem.slots import Slots
    from redismem.web.chat.chat import Chat
    from redismem.web.server import listen
    from redismem.web.server import serve as serve_until
    from redismem.web.service import Limits, Service, opened

    settings = Settings()
    # What is loaded by now stays: looking through it again and again for garbage is work that every turn would pay for.
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)
    async with opened(access.namespaces, connect) as memories:
        limits = Limits(rate_per_s=options.rate, rate_burst_count=options.burst)
        slots = None if options.slots is None else Slots.from_toml(_text_of(options.slots))
        if options.project is not None:  # a name that is none is refused before anybody asks
            next(iter(memories.values())).project(options.project)
        chat = Chat(_model(settings), slots, max_tokens=options.answer_tokens, project=options.project)
        service = Service(memories, access, limits, chat=chat, cors_origins=options.cors_origin, meters=meters)
        with listen(options.host, options.port) as listening:
            host = f"[{options.host}]" if ":" in options.host else options.host
            at = f"http://{host}:{listening.getsockname()[1]}"
            print(f"redismem listens on {at} (store: {place}); a browser finds its page there", flush=True)
            if access.is_open:
                complain("no keys: everybody on this machine may do everything; see --keys-file")
            await _complain_of_no_worker(memories)
            await serve_until(service, listening, told, options.stop_s)
            print("redismem has stopped", flush=True)


async def _complain_of_no_worker(memories: Mapping[str, Memory]) -> None:
    """Names the namespaces that nobody works for now. If Redis does not say so, nothing is said."""
    alone = []
    for namespace, memory in memories.items():
        with contextlib.suppress(RedismemError):
            if memory.workers is None and not await is_looked_after(memory.store):
                alone.append(namespace)
    if alone:
        names = ", ".join(alone[:3]) + (f" and {len(alone) - 3} more" if len(alone) > 3 else "")
        complain(
            f"no worker looks after {names} now: nothing is summarised, nor evicted; start `redismem worker` on the "
            "same Redis and namespace, or serve with --workers"
        )


def _connect(address: str, settings: Settings, workers: bool, meters: Meters) -> Callable[[str], Memory]:
    from redismem.web.metrics.prometheus import listener

    def connect(namespace: str) -> Memory:
        return Memory.connect(
            address, namespace=namespace, settings=settings, workers=workers, on_event=listener(meters)
        )

    return connect


def _access(options: Options, namespace: str) -> Access:
    from redismem.web.access import Access

    keys, keys_file = options.keys, options.keys_file
    if keys and keys_file:
        raise Stop("give keys or a file of keys; not both", 2)
    if keys_file == "" and not keys:
        raise Stop("REDISMEM_SERVER_KEYS_FILE, or --keys-file, is empty: it names no file", 2)
    if keys_file:
        keys = _text_of(Path(keys_file))
    access = Access.of(keys or "", namespace)
    if access.is_open and keys is not None:
        raise Stop(f"{keys_file or 'REDISMEM_SERVER_KEYS, or --keys,'} holds no key", 2)
    if namespace not in ("default", *access.namespaces):
        complain(
            f"--namespace {namespace} is not obeyed: the keys say which namespaces are served, and it is none of theirs"
        )
    return access


def _check_origins(origins: tuple[str, ...]) -> None:
    """Raises Stop for one that no browser sends: its pages would be refused in silence."""
    for origin in origins:
        parts = _ORIGIN.fullmatch(origin)
        if parts is None or (parts[1], parts[2]) in (("http", ":80"), ("https", ":443")):
            raise Stop(
                "--cors-origin is http:// or https:// with a host in small letters, and a port if it is not the usual "
                "one; nothing behind: https://shop.example",
                2,
            )


def _model(settings: Settings) -> StreamingModel | None:
    """The model that writes summaries also answers. Raises InvalidSettings."""
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


def _text_of(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeError):
        raise Stop(f"{path} cannot be read", 2) from None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def key(
    name: Annotated[str, Parameter(help="What logs and limits call the key.")],
    *,
    namespace: Namespace = "default",
    scope: Annotated[tuple[str, ...], Parameter(negative=(), help="read, write, admin; repeatable.")] = (
        "read",
        "write",
    ),
) -> int:
    """Make a key: it is printed once on stdout, its line for the list of keys on the next line."""
    from redismem.web.access import new_key

    secret, line = new_key(name, namespace, scope)
    print(secret)
    print(line)
    return 0
