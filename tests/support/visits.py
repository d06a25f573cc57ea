"""Run every command, every route and every public module once, in an environment that may lack extras.

A program of its own: it needs nothing but redismem. Its arguments are a URL of Redis and a folder; it prints, as JSON,
what it expected the environment to refuse, what was refused, and each failure.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import PackageNotFoundError, distribution, requires
from pathlib import Path
from typing import Any

from redismem.cli import main
from redismem.cli.commands import COMMANDS

ADAPTERS = {
    "openai_agents": "openai-agents",
    "agent_framework": "agent-framework",
    "llama_index": "llama-index",
    "langchain": "langchain",
    "langgraph": "langgraph",
    "pydantic_ai": "pydantic-ai",
    "strands": "strands",
    "google_adk": "google-adk",
    "crewai": "crewai",
    "chainlit": "chainlit",
    "claude_agent_sdk": "claude-agent-sdk",
    "a2a": "a2a",
}
MODULES = {f"redismem.adapters.{name}": [extra] for name, extra in ADAPTERS.items()}
MODULES |= {"redismem.metrics": ["metrics"], "redismem.mcp": ["mcp"]}
# The arguments of each command; those that serve until a signal are in SERVED.
WORDS = {
    "bench": ["--seconds", "0.1"],
    "tune": ["{folder}/transcript.jsonl", "--seconds", "0"],
    "import": ["jsonl", "{folder}/transcript.jsonl"],
    "show session": ["s"],
    "show record": ["r"],
    "show project": ["p"],
    "show quarantine": ["s"],
    "search": ["rain", "--session", "s"],
    "remove session": ["other", "--yes"],
    "remove owner": ["nobody", "--yes"],
    "remove prefix": ["nobody", "--yes"],
    "remove dead": ["s", "--yes"],
    "remove quarantine": ["s", "--yes"],
    "remove dictionary": ["1", "--yes"],
    "repair quarantine": ["s"],
    "worker": ["--once"],
    "key": ["shop"],
    "project decisions": ["p"],
    "project history": ["p", "{decision}"],
    "project tasks": ["p"],
    "project entities": ["p"],
    "project consolidate": ["p"],
    "project export": ["p", "{folder}/p"],
    "project import": ["q", "{folder}/p"],
}
SERVED = {
    "serve": ["server"],
    "serve --mcp": ["mcp"],
    "serve --mcp --http": ["mcp", "server"],
    "worker --metrics-port": ["server"],
}
PORT = {"serve --mcp": [], "worker --metrics-port": ["0"]}
EMBEDDERS = {"wordllama": "wordllama", "openai:small": "embeddings"}
BODIES: dict[str, Any] = {
    "/v1/search": {"text": "rain"},
    "/policy": {"keep_whole": False, "idle_timeout_s": None, "exempt": False, "zone": None},
    "/messages": {"role": "user", "content": "It rains."},
    "/messages/{seq}": {"message": {"role": "user", "content": "It pours."}},
    "/state": {"params": {"city": "Lima"}},
    "/prune": {"max_messages": 5},
    "/forget": {"seqs": [1]},
    "/retry": {"session_ids": ["s"]},
    "/drop": {"session_ids": ["s"]},
    "/turns": {"message": "It rains.", "when_busy": "wait"},
    "/turns/current/stop": {},
    "/ui/chat": {"id": "chat", "messages": [{"id": "t", "role": "user", "parts": [{"type": "text", "text": "Rain?"}]}]},
    "/ag-ui": {"threadId": "chat", "runId": "r", "messages": [{"role": "user", "content": "It rains."}]},
    "/openai/responses": {"conversation": "chat", "input": "It rains."},
    "/api/chat": {"session_id": "chat", "message": "It rains."},
    "/api/chat/clear": {"session_id": "chat"},
    "/api/chat/stop": {"session_id": "chat"},
    "/status": {"status": "planned"},
    "/{store}": {"title": "Move the data"},
}
IDS = {"id": "chat", "response_id": "resp_MS0wYTFiMmMzZApjaGF0CnQ"}


def is_met(extra: str) -> bool:
    """True if all packages of the extra are installed, and new enough."""
    for requirement in requires("redismem") or ():
        name, _, marker = requirement.partition(";")
        if f"extra == '{extra}'" in marker and "platform" not in marker:
            floor = re.search(r">=([\d.]+)", name)
            try:
                installed = distribution(re.match(r"[\w.-]+", name)[0]).version  # type: ignore[index]
            except PackageNotFoundError:
                return False
            if floor and numbers_of(installed) < numbers_of(floor[1]):
                return False
    return True


def numbers_of(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)[:3]]


class Visits:
    """The outcome of each visit by its name."""

    def __init__(self) -> None:
        self.expected: list[str] = []
        self.refused: list[str] = []
        self.failed: dict[str, str] = {}

    def visit(self, name: str, extras: list[str], run: Callable[[], str]) -> None:
        """Run one visit, which returns what it printed. A missing extra must be named in one line, with its remedy."""
        missing = [extra for extra in extras if not is_met(extra)]
        if missing:
            self.expected.append(name)
        try:
            printed = run()
        except ImportError as error:
            printed = str(error)
        except BaseException as error:
            self.failed[name] = f"{type(error).__name__}: {error}"
            return
        if ": pip install" in printed:
            self.refused.append(name)
            if missing and f"pip install 'redismem[{missing[0]}]'" not in printed:
                self.failed[name] = printed
        elif "Traceback" in printed or "failed with" in printed or "No module" in printed:
            self.failed[name] = printed


def run_here(*words: str) -> str:
    """Run a command in this process, and return all that it printed."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        main(words)
    return out.getvalue() + err.getvalue()


def leaves() -> Iterator[str]:
    for name, where in COMMANDS.items():
        yield from [name] if isinstance(where, str) else [f"{name} {inner}" for inner in where]


def run_server(words: list[str], ask: Callable[[str], None]) -> str:
    """Start a server, call `ask` with its address, end it, and return all that it printed."""
    command = [sys.executable, *(["-S"] if sys.flags.no_site else []), "-m", "redismem", *words]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT, text=True
    ) as running:
        assert running.stdout is not None
        printed = ""
        for line in running.stdout:
            printed += line
            if address := re.search(r"(http://127\.0\.0\.1:\d+)", line):
                try:
                    ask(address[1])
                finally:
                    running.send_signal(signal.SIGTERM)
        if running.wait() not in (0, 2):
            raise AssertionError(f"exit code {running.returncode}: {printed}")
    return printed


def ask_routes(items: dict[str, str], base_url: str) -> None:
    """Send one request to each route of the OpenAPI document."""
    import httpx

    failed = []
    with httpx.Client(base_url=base_url, timeout=60, trust_env=False) as client:
        paths = client.get("/openapi.json").json()["paths"]
        routes = [(method, path, operation) for path, by in paths.items() for method, operation in by.items()]
        for method, path, operation in sorted(routes, key=lambda route: route[0] == "delete"):
            # The longest ending of the path decides the body.
            ending = max((end for end in BODIES if path.endswith(end)), key=len, default="")
            body = BODIES[ending] if "requestBody" in operation else None
            item_id = items["decision" if "/decisions/" in path else "task"]
            place = path.format(session_id="s", seq="1", name="p", store="tasks", item_id=item_id, **IDS)
            query = {"owner": "nobody"} if (method, path) == ("delete", "/v1/sessions") else None
            with client.stream(method, place, json=body, params=query) as answer:
                if answer.status_code not in (200, 201, 204, 404):
                    failed.append(f"{method} {path}: {answer.status_code} {answer.read().decode()}")
    assert not failed, "\n".join(failed)


def ask_nothing(base_url: str) -> None:
    """Visit a server that only starts and ends."""


def ask_metrics(base_url: str) -> None:
    import httpx

    for path in ("/livez", "/metrics"):
        assert httpx.get(f"{base_url}{path}", trust_env=False, timeout=60).status_code == 200


def main_visits(folder: Path) -> Visits:
    """Make something to look at, then visit everything."""
    from redismem.blocking import Memory

    visits = Visits()
    (folder / "transcript.jsonl").write_text(
        json.dumps({"session_id": "t", "messages": [{"role": "user", "content": "a"}]}) + "\n"
    )
    with Memory.connect() as memory:
        for name in ("s", "other"):
            memory.session(name).append({"role": "user", "content": "It rains."})
        items = {
            "decision": memory.project("p").decisions.create("Use Redis").id,
            "task": memory.project("p").tasks.create("Move the data").id,
        }
    for name in leaves():
        if name not in SERVED:
            words = [word.format(folder=folder, **items) for word in WORDS.get(name, [])]
            visits.visit(name, [], partial(run_here, *name.split(), *words))
    for name, extra in EMBEDDERS.items():
        os.environ["REDISMEM_EMBED"] = name
        visits.visit(f"doctor, {name}", [extra], partial(run_here, "doctor"))
    del os.environ["REDISMEM_EMBED"]
    asks: dict[str, Callable[[str], None]] = {"serve": partial(ask_routes, items), "worker --metrics-port": ask_metrics}
    for name, extras in SERVED.items():
        words = [*name.split(), *PORT.get(name, ["--port", "0"])]
        visits.visit(name, extras, partial(run_server, words, asks.get(name, ask_nothing)))
    for name, extras in MODULES.items():
        visits.visit(name, extras, partial(import_module, name))
    return visits


def import_module(name: str) -> str:
    importlib.import_module(name)
    return ""


if __name__ == "__main__":
    os.environ["REDISMEM_URL"] = sys.argv[1]
    outcome = main_visits(Path(sys.argv[2]))
    sys.stdout.write(json.dumps(vars(outcome)))
