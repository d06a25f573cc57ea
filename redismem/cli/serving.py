"""The parts that the servers for people and for models share: options, keys, limits and warnings."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import resource
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from redismem.cli.logs import logs_on_stderr
from redismem.cli.options import flag, option, within
from redismem.cli.place import address_of, safe_url, stop_for
from redismem.cli.stopping import hangup_signals, stop_signals
from redismem.cli.streams import complain
from redismem.cli.terminal import Stop
from redismem.errors import RedismemError, StoreUnavailable
from redismem.inspection.doctor import has_workers
from redismem.memory.memory import Memory
from redismem.settings.settings import Settings
from redismem.transport.connect import EMBEDDED

if TYPE_CHECKING:
    from redismem.web.access import Access
    from redismem.web.service import Memories, Service

Mcp = Annotated[bool, flag("Serve models over the Model Context Protocol, on stdin and stdout.")]
Http = Annotated[bool, flag("With --mcp: serve over streamable HTTP, at /mcp.")]
Resumable = Annotated[bool, flag("With --mcp --http: keep the events of streams in Redis, for clients that reconnect.")]
Owner = Annotated[str | None, option("With --mcp on stdin: the owner of the sessions that the client begins.")]
Host = Annotated[str, option("The address to listen on; without keys only a loopback address.")]
Port = Annotated[int | None, within(0, 65_535, "The port; 0 picks a free one. [default: 8080; with --mcp --http 8081]")]
_KEYS_HELP = "The keys, one per line as `redismem key NAME` prints them; `;` separates keys too."
Keys = Annotated[str | None, option(_KEYS_HELP, "REDISMEM_SERVER_KEYS")]
_FILE_HELP = "A file with the keys, one per line; read again when it changes, and on SIGHUP. [default: no keys]"
KeysFile = Annotated[str | None, option(_FILE_HELP, "REDISMEM_SERVER_KEYS_FILE")]
_RATE_HELP = "Requests per second and key, over all servers. [default: no limit]"
Rate = Annotated[float | None, within(0.001, 1_000_000, _RATE_HELP, "REDISMEM_SERVER_RATE")]
_BURST_HELP = "Requests that a key may send in one burst."
Burst = Annotated[int, within(1, 1_000_000, _BURST_HELP, "REDISMEM_SERVER_BURST")]
_ORIGINS_HELP = "An origin whose pages may send requests, such as https://shop.example; repeatable. [default: none]"
Origins = Annotated[tuple[str, ...], flag(_ORIGINS_HELP)]
Workers = Annotated[
    bool | None, option("Also summarise and evict here. [default: with the embedded store, and --demo]")
]
_SLOTS_HELP = "A TOML file with the slots that the chat fills; --mcp hides the sensitive ones: see docs/http.md."
SlotsFile = Annotated[Path | None, option(_SLOTS_HELP)]
ProjectName = Annotated[str | None, option("The project in the chat's context, unless a message names another.")]
AnswerTokens = Annotated[int, within(16, 1_000_000, "Limit of an answer of the chat's model, reasoning included.")]
RecallTokens = Annotated[int, within(0, 100_000, "Tokens of earlier messages that each answer recalls; 0 for none.")]
_SCOPE_HELP = "What the chat's answers recall for keys of one owner: this session, or all of the owner's."
RecallScope = Annotated[Literal["session", "owner"], option(_SCOPE_HELP)]
Demo = Annotated[bool, flag("Fill the namespace redismem-demo with conversations and a project, and serve it.")]
StopS = Annotated[float, within(1, 600, "Seconds to finish open requests, and the work of --workers.")]
_FILES_COUNT = 65_536


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """The options of a server."""

    demo: Demo = False
    mcp: Mcp = False
    http: Http = False
    host: Host = "127.0.0.1"
    port: Port = None
    keys: Keys = None
    keys_file: KeysFile = None
    rate: Rate = None
    burst: Burst = 20
    cors_origin: Origins = ()
    workers: Workers = None
    slots: SlotsFile = None
    project: ProjectName = None
    answer_tokens: AnswerTokens = 4_096
    recall: RecallTokens = 1_200
    recall_scope: RecallScope = "session"
    resumable: Resumable = False
    owner: Owner = None
    stop_s: StopS = 10


DEFAULT = ServeOptions()


def changed_options(options: ServeOptions, *names: str) -> list[str]:
    """Return the options with these names that have not their defaults, as a user writes them."""
    changed = [name for name in names if getattr(options, name) != getattr(DEFAULT, name)]
    return [f"--{name.replace('_', '-')}" for name in changed]


@dataclass(frozen=True, slots=True)
class Running:
    """The Redis of a running server, and the signals that reach the server."""

    settings: Settings
    address: str
    stopping: asyncio.Event
    hangup: asyncio.Event

    @property
    def embedded(self) -> bool:
        return self.address.lower() == EMBEDDED

    @property
    def place(self) -> str:
        """The address without user, password and options."""
        return "embedded" if self.embedded else safe_url(self.address)


@contextlib.contextmanager
def running(url: str | None, *, as_json: bool) -> Iterator[Running]:
    """Log to stderr and listen to signals while the block runs. Raises Stop if Redis does not answer."""
    settings = Settings()
    address = address_of(url, settings)
    with logs_on_stderr(as_json=as_json), stop_signals() as stopping, hangup_signals() as hangup:
        here = Running(settings, address, stopping, hangup)
        try:
            yield here
        except StoreUnavailable as error:
            raise stop_for(here.place, error) from None


@contextlib.asynccontextmanager
async def listening(
    options: ServeOptions, service: Service, memories: Memories, here: Running, port: int, words: Callable[[str], str]
) -> AsyncIterator[socket.socket]:
    """Listen, and follow the file of keys, while the block runs. Prints the words for the address.

    Without the option, the port is `port`.
    """
    from redismem.web.server import listen

    host = f"[{options.host}]" if ":" in options.host else options.host
    with listen(options.host, port if options.port is None else options.port) as opened:
        print(words(f"http://{host}:{opened.getsockname()[1]}"), flush=True)
        if service.access.is_open:
            complain("no keys: every user of this machine has full access; see --keys-file")
        await warn_of_missing_workers(memories)
        async with _following(options.keys_file, service, memories, here.hangup):
            yield opened
        print("redismem has stopped", flush=True)


@contextlib.asynccontextmanager
async def _following(
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
