"""The list of commands, and what is the same for all of them: running, errors, exit codes."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from importlib.metadata import version
from typing import Any

from cyclopts import App, CycloptsError

from redismem.cli.terminal import Stop, complain
from redismem.errors import InvalidItem, InvalidSessionId, InvalidSettings, RedismemError

_HELP = """Session memory for chat backends, on Redis.

Each command takes `--url`, else `REDISMEM_URL`, else an embedded store that ends with the command.
All other settings come from `REDISMEM_*` too. Exit codes: 0 all is well, 1 something is not, 2 wrong usage.
"""

app = App(name="redismem", help=_HELP, help_format="markdown", version=lambda: version("redismem"))
# By name: a command's file is imported when that command is asked for.
_COMMANDS: dict[str, Any] = {
    "demo": "demo.command:demo",
    "replay": "replay.command:replay",
    "sessions": "sessions:sessions",
    "show": "sessions:show",
    "recall": "recall:recall",
    "clear": "sessions:clear",
    "worker": "worker:worker",
    "serve": "serve:serve",
    "key": "serve:key",
    "queues": "queues:queues",
    "watch": "watch:watch",
    "dead": {"list": "dead:list_dead", "retry": "dead:retry", "drop": "dead:drop"},
    "quarantine": {
        "list": "quarantine:list_quarantined",
        "show": "quarantine:show",
        "restore": "quarantine:restore",
        "drop": "quarantine:drop",
    },
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
_HELP_OF = {
    "dead": "Sessions whose summary failed too often: list them, retry them, drop them from the list.",
    "quarantine": "Sessions that could not be read: list them, show, restore or drop one.",
    "project": "What a project decided, has to do and is about: tables, a board, chains, numbers, files.",
}


def _add(to: App, commands: Mapping[str, Any]) -> None:
    for place, (name, where) in enumerate(commands.items()):
        if isinstance(where, str):
            to.command(f"redismem.cli.{where}", name=name, sort_key=place)
        else:
            inner = App(name=name, help=_HELP_OF[name], sort_key=place, version_flags=())
            _add(inner, where)
            to.command(inner)


def _import_listed(to: App, commands: Mapping[str, Any], arguments: Sequence[str]) -> None:
    """Imports what a list of commands, which needs their first lines, will show."""
    if arguments and arguments[0] in commands:
        inner = commands[arguments[0]]
        if not isinstance(inner, str):
            _import_listed(to[arguments[0]], inner, arguments[1:])
        return
    for name in commands:
        to[name]


_add(app, _COMMANDS)


def run(arguments: Sequence[str]) -> int:
    """Runs a command line and gives its exit code. Errors that a user can mend are one line on stderr."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without UTF-8, a message with half a character
    _import_listed(app, _COMMANDS, arguments)
    try:
        command, bound, _ = app.parse_args(arguments, exit_on_error=False, print_error=False)
        code = _result(command, bound)
        sys.stdout.flush()
        return code
    except CycloptsError as refused:
        complain(f"{str(refused).strip()} (redismem --help lists what there is)")
        return 2
    except Stop as stopped:
        complain(str(stopped))
        return stopped.code
    except RedismemError as error:
        complain(str(error))
        return 2 if isinstance(error, InvalidSessionId | InvalidSettings | InvalidItem) else 1
    except BrokenPipeError:
        # Whoever read our output has seen enough. What is still in the buffer must not fail at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        complain("interrupted")
        return 130


def _result(command: Callable[..., Any], bound: inspect.BoundArguments) -> int:
    """The exit code that a command returns; 0 for help and version, which return none."""
    result = command(*bound.args, **bound.kwargs)
    if inspect.iscoroutine(result):
        result = _run_loop(result)
    return result if isinstance(result, int) else 0


def _run_loop(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Runs the coroutine, on uvloop if it is installed, and gives its result."""
    try:
        new_loop = importlib.import_module("uvloop").new_event_loop
    except ImportError:
        new_loop = None
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(_until_terminated(coroutine))


async def _until_terminated(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """SIGTERM ends a command as Ctrl-C does: it first puts right what it has begun. A second one ends it at once."""
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
