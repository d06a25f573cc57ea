"""`redismem demo`: a bundled support chat through the memory, turn by turn, and each turn checked."""

from __future__ import annotations

import contextlib
import sys
from typing import Annotated

from cyclopts import Parameter

from redismem.cli.demo import view
from redismem.cli.demo.expected import bundled_turns
from redismem.cli.demo.playing import Playing
from redismem.cli.demo.project_week import play_week
from redismem.cli.place import open_memory
from redismem.cli.terminal import AsJson, Namespace, Url, console, print_json
from redismem.errors import RedismemError

# What the notes in the bundled conversation speak of, whatever the environment says.
SETTINGS = {
    "threshold": 10,
    "recent_limit": 6,
    "strategy": "summarize",
    "model_provider": "extractive",
    "summary_tokens_total": 150,
    "keep_originals": True,
}

OfProject = Annotated[
    bool, Parameter(negative=(), show_default=False, help="A week of a project instead, and back in time.")
]


async def demo(
    *,
    step: Annotated[
        bool, Parameter(negative=(), show_default=False, help="Wait for Enter after each turn, on a terminal.")
    ] = False,
    project: OfProject = False,
    url: Url = None,
    namespace: Namespace = "redismem-demo",
    as_json: AsJson = False,
) -> int:
    """See it at work: a bundled support chat, turn by turn.

    Shows after each turn what the model would be given: summaries, pending, recent, state, counters. When the window is
    over its threshold a worker summarises it, offline. At the end an append that is sent twice, a conflict, a
    clear, and a question about message 3 of 200. Runs on an embedded store unless you name a Redis; there it uses
    a session of its own and clears it again.

    The demo checks itself: each context, each summary and what it stands for, the state, the counters and the round
    trips must be what they should be.
    Exit code: 0 all of it was, 1 something was not.
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
                shown = await playing.play(turn)
                if not as_json:
                    view.show_turn(out, shown)
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
