"""The code that runs a command: arguments, event loop, errors, exit codes."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import shlex
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from importlib.metadata import version
from typing import Any

from cyclopts import App, CycloptsError, UnusedCliTokensError

from redismem.cli.commands import COMMANDS, DEFAULT_KINDS, HELP, HELP_OF
from redismem.cli.streams import complain, end_broken_pipe
from redismem.cli.terminal import UNREACHABLE, Stop
from redismem.errors import (
    InvalidItem,
    InvalidSessionId,
    InvalidSettings,
    NotAllowed,
    RedismemError,
    StoreUnavailable,
)
from redismem.settings.extras import MissingExtra

Command = tuple[Callable[..., Any], inspect.BoundArguments]


def _make_app() -> App:
    made = App(name="redismem", help=HELP, help_format="markdown", version=lambda: version("redismem"))
    for place, (name, where) in enumerate(COMMANDS.items()):
        if isinstance(where, str):
            made.command(f"redismem.cli.{where}", name=name, sort_key=place)
        else:
            group = App(name=name, help=_help_of_kinds(name), sort_key=place, version_flags=())
            for inner_place, (inner_name, inner_where) in enumerate(where.items()):
                group.command(f"redismem.cli.{inner_where}", name=inner_name, sort_key=inner_place)
            made.command(group)
    return made


def _help_of_kinds(name: str) -> str:
    kind = DEFAULT_KINDS.get(name)
    if kind is None:
        return HELP_OF[name]
    line = f"redismem {name} {kind}"
    return f"{HELP_OF[name]}\n\n`redismem {name}` without a kind is `{line}`. Its options:\n\n`{line} --help`"


app = _make_app()


def parse(arguments: Sequence[str]) -> Command:
    """Return the function of a command line and its arguments, without importing other commands.

    Raises:
        CycloptsError: The command line is wrong.
        Stop: It has an argument that the command does not take.
    """
    name, *others = arguments
    kinds = COMMANDS[name]
    if not isinstance(kinds, str) and (not others or others[0] not in kinds):
        if name in DEFAULT_KINDS and others[:1] not in (["--help"], ["-h"]):
            arguments = [name, DEFAULT_KINDS[name], *others]
        else:
            for kind in kinds:
                app[name][kind]  # the help page of a group shows the first lines of the docstrings
    try:
        command, bound, _ = app.parse_args(arguments, exit_on_error=False, print_error=False)
    except UnusedCliTokensError as extra:
        raise Stop(_explain_extra(name, others, extra), 2) from None
    return command, bound


def _explain_extra(name: str, given: Sequence[str], extra: UnusedCliTokensError) -> str:
    """Say what the command takes instead of an argument that it does not take."""
    assert extra.unused_tokens
    assert extra.target is not None
    word, kinds = extra.unused_tokens[0], COMMANDS[name]
    parameters = inspect.signature(extra.target).parameters
    takes = [each.upper() for each, how in parameters.items() if how.kind is how.POSITIONAL_ONLY]
    path = " ".join(extra.command_chain or (name,))
    if not isinstance(kinds, str) and given[0] not in kinds:  # the kind was left out, or misspelt
        text = f"{name} takes {' and '.join(takes) or 'nothing'}, or one of {', '.join(kinds)}; not {word}"
    elif takes:
        text = f"{path} takes {' and '.join(takes)} alone, not also {word}"
    else:
        text = f"{path} takes no arguments"
    if word in parameters and not isinstance(kinds, str):  # `list owner ada`: an option without its dashes
        rest = shlex.join([f"--{word}", *extra.unused_tokens[1:]])
        return f"{text}; did you mean: redismem {path} {rest}"
    hint = f"; name the namespace with --namespace {word}" if {"on", "namespace", "namespaces"} & {*parameters} else ""
    return text + hint


def run(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code. An error that the user can fix is one line on stderr."""
    try:
        command, bound = parse(arguments)
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
        return code_of(error)
    except BrokenPipeError:
        return end_broken_pipe()
    except KeyboardInterrupt:
        complain("interrupted")
        return 128 + signal.SIGINT


def code_of(error: RedismemError) -> int:
    """Return the exit code for an error of the memory."""
    if isinstance(error, StoreUnavailable | NotAllowed):
        return UNREACHABLE
    return 2 if isinstance(error, InvalidSessionId | InvalidSettings | InvalidItem) else 1


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
