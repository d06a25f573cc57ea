"""The list of commands, and the code that runs each of them: event loop, errors, exit codes."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from importlib.metadata import version
from typing import Any

from cyclopts import App, CycloptsError

from redismem.cli.terminal import Stop, complain
from redismem.errors import InvalidItem, InvalidSessionId, InvalidSettings, RedismemError

_HELP = """Session memory for chat backends, on Redis.

Each command uses the Redis of `--url` or `REDISMEM_URL`; without either, an embedded store that ends with the command.
All other settings come from `REDISMEM_*` variables. Exit codes: 0 success, 1 failure, 2 wrong usage.
"""

# By name, so that a command's file is imported only when that command runs.
_COMMANDS: dict[str, Any] = {
    "demo": "demo.command:demo",
    "replay": "replay.command:replay",
    "import": "importing.command:import_",
    "sessions": "sessions:sessions",
    "show": "sessions:show",
    "recall": "recall:recall",
    "clear": "sessions:clear",
    "forget": "forget:forget",
    "worker": "worker:worker",
    "serve": "serve:serve",
    "key": "serve:key",
    "mcp": "mcp:mcp",
    "queues": "queues:queues",
    "watch": "watch:watch",
    "dead": {"list": "dead:list_dead", "retry": "dead:retry", "drop": "dead:drop"},
    "quarantine": {
        "list": "quarantine:list_quarantined",
        "show": "quarantine:show",
        "restore": "quarantine:restore",
        "drop": "quarantine:drop",
    },
    "dictionaries": {"list": "dictionaries:list_dictionaries", "drop": "dictionaries:drop"},
    "namespaces": "namespaces:namespaces",
    "project": {
        "list": "project:projects",
        "show": "project:show",
        "decisions": "project:decisions",
        "chain": "project:chain",
        "tasks": "project:tasks",
        "board": "project:board",
        "entities": "project:entities",
        "consolidate": "project:consolidate",
        "export": "project_files:export",
        "import": "project_files:import_",
    },
    "check": "check:check",
    "doctor": "doctor:doctor",
    "deploy": "deploy:deploy",
    "settings": "settings:settings",
}
# The lines of `redismem --help`. They equal the first lines of the docstrings, so that it imports no command.
_HELP_OF = {
    "demo": "Play a bundled support chat turn by turn.",
    "replay": "Store transcripts from a file turn by turn and time this; then summarise, read everything back and "
    "compare.",
    "import": "Copy conversations from another store into sessions that the framework's adapter reads.",
    "sessions": "List the sessions of a namespace, most recently active first.",
    "show": "Show a session: summaries, pending and recent messages, state names, counters.",
    "recall": "Find earlier messages that match a question, among the summarised messages.",
    "clear": "Remove a session with its messages, summaries, state and queue entries.",
    "forget": "Remove all sessions and records of a person: by owner, or by the beginning of their ids.",
    "worker": "Summarise and evict sessions, until SIGTERM or SIGINT.",
    "serve": "Serve the memory over HTTP, until SIGTERM or SIGINT.",
    "key": "Create a key: prints the key, which is shown only once, and below it the line for the key list.",
    "mcp": "Serve the memory to models over the Model Context Protocol, as tools for sessions and projects.",
    "queues": "Show the queues: how many sessions wait, and for how long.",
    "watch": "Watch the queues: refreshes in place on a terminal, prints one line per poll when piped.",
    "namespaces": "List the namespaces of a Redis with their numbers of shards, sessions and records.",
    "check": "Check every session, project and record of a namespace against the invariants.",
    "doctor": "Check the Redis server, the namespace and the settings, and advise what to change.",
    "deploy": "Load the scripts, as a user with that right: see the ACL in docs/operations.md.",
    "settings": "List every setting: its variable, the value in use, its source and its meaning.",
    "dead": "Sessions whose summary failed too often: list, retry or drop them.",
    "quarantine": "Sessions and records that could not be read: list them; show, restore or drop one.",
    "dictionaries": "Compression dictionaries of summarised messages: list them, drop one that is not in use.",
    "project": "The decisions, tasks and entities of a project: tables, board, history, statistics, files.",
}


def _make_app(*, is_overview: bool = False) -> App:
    """Return the application. For the overview, its commands have only the help that `redismem --help` lists."""
    made = App(name="redismem", help=_HELP, help_format="markdown", version=lambda: version("redismem"))
    for place, (name, where) in enumerate(_COMMANDS.items()):
        if isinstance(where, str):
            help_line = {"help": _HELP_OF[name]} if is_overview else {}
            made.command(f"redismem.cli.{where}", name=name, sort_key=place, **help_line)
        else:
            group = App(name=name, help=_HELP_OF[name], sort_key=place, version_flags=())
            for inner_place, (inner_name, inner_where) in enumerate(where.items()):
                group.command(f"redismem.cli.{inner_where}", name=inner_name, sort_key=inner_place)
            made.command(group)
    return made


app = _make_app()


def _app_for(arguments: Sequence[str]) -> App:
    """Return the application for these arguments, without importing commands that they do not need."""
    name, *others = arguments or [""]
    if name not in _COMMANDS:
        return _make_app(is_overview=True)
    inner = _COMMANDS[name]
    if not isinstance(inner, str) and (not others or others[0] not in inner):
        for command in inner:
            app[name][command]  # the help page of a group shows the first lines of the docstrings
    return app


def run(arguments: Sequence[str]) -> int:
    """Run a command line and return its exit code. An error that the user can fix is one line on stderr."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without UTF-8, a lone surrogate in a message
    try:
        command, bound, _ = _app_for(arguments).parse_args(arguments, exit_on_error=False, print_error=False)
        code = _run_command(command, bound)
        sys.stdout.flush()
        return code
    except CycloptsError as refused:
        complain(f"{str(refused).strip()} (see redismem --help)")
        return 2
    except Stop as stopped:
        complain(str(stopped))
        return stopped.code
    except RedismemError as error:
        complain(str(error))
        return 2 if isinstance(error, InvalidSessionId | InvalidSettings | InvalidItem) else 1
    except BrokenPipeError:
        # The reader of the pipe has gone: flushing the rest of the buffer at exit must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        complain("interrupted")
        return 130


def _run_command(command: Callable[..., Any], bound: inspect.BoundArguments) -> int:
    """Run the command and return its exit code, which is 0 for help and version."""
    result = command(*bound.args, **bound.kwargs)
    if inspect.iscoroutine(result):
        result = _run_loop(result)
    return result if isinstance(result, int) else 0


def _run_loop(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run the coroutine, on uvloop if it is installed, and return its result."""
    try:
        new_loop = importlib.import_module("uvloop").new_event_loop
    except ImportError:
        new_loop = None
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(_until_terminated(coroutine))


async def _until_terminated(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Cancel the command on SIGTERM, so that it cleans up as on Ctrl-C. A second SIGTERM ends the process at once."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    is_terminated = False

    def end() -> None:
        nonlocal is_terminated
        is_terminated = True
        loop.remove_signal_handler(signal.SIGTERM)
        if task is not None:
            task.cancel()

    loop.add_signal_handler(signal.SIGTERM, end)
    try:
        return await coroutine
    except asyncio.CancelledError:
        if is_terminated:
            raise Stop("terminated", 128 + signal.SIGTERM) from None
        raise
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
