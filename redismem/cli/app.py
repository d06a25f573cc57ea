"""The code that runs a command: arguments, event loop, errors, exit codes."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from importlib.metadata import version
from typing import Any

from cyclopts import App, CycloptsError

from redismem.cli.commands import COMMANDS, HELP, HELP_OF
from redismem.cli.streams import complain, end_broken_pipe
from redismem.cli.terminal import Stop
from redismem.errors import InvalidItem, InvalidSessionId, InvalidSettings, RedismemError
from redismem.settings.extras import MissingExtra


def _make_app() -> App:
    made = App(name="redismem", help=HELP, help_format="markdown", version=lambda: version("redismem"))
    for place, (name, where) in enumerate(COMMANDS.items()):
        if isinstance(where, str):
            made.command(f"redismem.cli.{where}", name=name, sort_key=place)
        else:
            group = App(name=name, help=HELP_OF[name], sort_key=place, version_flags=())
            for inner_place, (inner_name, inner_where) in enumerate(where.items()):
                group.command(f"redismem.cli.{inner_where}", name=inner_name, sort_key=inner_place)
            made.command(group)
    return made


app = _make_app()


def _app_for(arguments: Sequence[str]) -> App:
    """Return the application for the arguments of a command, without importing commands that they do not need."""
    name, *others = arguments
    inner = COMMANDS[name]
    if not isinstance(inner, str) and (not others or others[0] not in inner):
        for command in inner:
            app[name][command]  # the help page of a group shows the first lines of the docstrings
    return app


def run(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code. An error that the user can fix is one line on stderr."""
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
    except MissingExtra as missing:
        complain(str(missing))
        return 2
    except RedismemError as error:
        complain(str(error))
        return 2 if isinstance(error, InvalidSessionId | InvalidSettings | InvalidItem) else 1
    except BrokenPipeError:
        return end_broken_pipe()
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
