"""A redis-server for development: `ensure` installs it if it is missing, `run` starts a private one.

Needs only Python, so it works before anything is installed.
"""

import contextlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import packages

OLDEST = (7, 0)
HOW_TO_INSTALL = """\
    Debian, Ubuntu   sudo apt-get install redis-server
    macOS            brew install redis
    elsewhere        https://redis.io/docs/latest/operate/oss_and_stack/install/"""


def version() -> tuple[int, int] | None:
    """Return the version of `redis-server` on the PATH; `None` if it is missing."""
    if shutil.which("redis-server") is None:
        return None
    text = subprocess.run(["redis-server", "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"\bv=(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def install() -> None:
    """Install redis-server through apt, or stop and say what to install."""
    said = packages.install("redis-server")
    if said is not None or version() is None:
        sys.exit(f"{said or ''}\nredis-server is missing, and only you can install it here:\n{HOW_TO_INSTALL}")


def ensure() -> None:
    """Make sure that a recent redis-server is on the PATH, or exit with instructions."""
    if version() is None:
        install()
    found = version()
    if found is None or found < OLDEST:
        have = "unknown" if found is None else f"{found[0]}.{found[1]}"
        sys.exit(f"redis-server 7.0 or newer is needed, here is {have}:\n{HOW_TO_INSTALL}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_up(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    for _ in range(200):
        time.sleep(0.05)
        if server.poll() is not None:
            break
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
    sys.exit(f"{log.read_text() if log.exists() else ''}\nredis-server does not answer.")


def run() -> None:
    """Run a private server until Ctrl-C: on loopback, with an append-only file and without eviction."""
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, lambda *_: sys.exit(0))
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="redismem-") as folder:
        options = {
            "bind": "127.0.0.1",
            "port": str(port),
            "dir": folder,
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": "",
            "maxmemory-policy": "noeviction",
            "logfile": "redis.log",
        }
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        server = subprocess.Popen(["redis-server", *words])
        try:
            wait_until_up(server, port, Path(folder, "redis.log"))
            url = f"redis://127.0.0.1:{port}/0"
            print(f"\n  {url} is up. Ctrl-C stops it and drops its data. In another shell:")
            print(f"\n    export REDISMEM_URL={url}\n    make demo\n", flush=True)
            server.wait()
        except KeyboardInterrupt:
            print()
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["ensure"]:
            ensure()
        case ["run"]:
            ensure()
            run()
        case _:
            sys.exit("usage: redis_server.py ensure | run")
