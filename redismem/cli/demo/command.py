"""`redismem demo`: play a bundled support chat turn by turn and check each turn."""

from __future__ import annotations

import contextlib
import sys
from typing import Annotated, Any

from cyclopts import Parameter

from redismem.cli.demo import view
from redismem.cli.demo.expected import bundled_turns
from redismem.cli.demo.playing import Playing
from redismem.cli.demo.project_week import play_week
from redismem.cli.place import open_memory
from redismem.cli.terminal import AsJson, OwnNamespace, Url, console, print_json
from redismem.errors import RedismemError

# The notes in the bundled conversation describe these values, so the environment must not change them.
SETTINGS: dict[str, Any] = {
    "threshold": 10,
    "recent_limit": 6,
    "strategy": "summarize",
    "model_provider": "extractive",
    "summary_tokens_total": 150,
    "keep_originals": True,
}

OfProject = Annotated[
    bool, Parameter(negative=(), show_default=False, help="Play a week of a project instead, with time travel.")
]


async def demo(
    *,
    step: Annotated[
        bool, Parameter(negative=(), show_default=False, help="Wait for Enter after each turn (terminal only).")
    ] = False,
    project: OfProject = False,
    url: Url = None,
    namespace: OwnNamespace = "redismem-demo",
    as_json: AsJson = False,
) -> int:
    """Play a bundled support chat turn by turn.

    Shows the context for the model after each turn: summaries, pending, recent, state and counters. Once the window
    exceeds its threshold, a worker summarises it, without a model. It ends with a repeated append, a conflict, a
    clear, and a question about message 3 of 200. Uses an embedded store, unless you name a Redis. On a Redis it uses
    a new session, and clears the session at the end.

    The demo checks each context, each summary and the messages it covers, the state, the counters and the round trips.
    Exit code: 0 if every check passed, 1 if not.
    """
    if project:
        return await play_week(url, namespace, as_json)
    out = console()
    waits = step and sys.stdin.isatty() and not as_json
    async with open_memory(url, namespace, **SETTINGS) as (memory, place):
        playing = Playing(memory, f"demo-{memory.new_session_id()}")
        if not as_json:
            view.begin(out, place, memory, playing.session.id)
        try:
            for turn in bundled_turns():
                played = await playing.play(turn)
                if not as_json:
                    view.show_turn(out, played)
                if turn.drain is not None:
                    drained = await playing.drain(turn)
                    if not as_json:
                        view.show_drain(out, drained)
                if waits:
                    print("Enter for the next turn ", end="", file=sys.stderr, flush=True)
                    sys.stdin.readline()
            await playing.finish()
        finally:
            with contextlib.suppress(RedismemError):
                await playing.session.clear()
    if as_json:
        print_json(view.document(playing, place, namespace))
    else:
        view.end(out, playing, place)
    return 0 if playing.good else 1
