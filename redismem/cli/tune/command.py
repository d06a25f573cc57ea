"""`redismem tune`: play conversations through settings, show what each holds and costs, and name those for a goal."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from redismem.cli.options import AsJson, Url, Yes, flag
from redismem.cli.place import warn_if_embedded
from redismem.cli.room import bytes_in_redis
from redismem.cli.streams import complain_all
from redismem.cli.terminal import Stop, check_file, console, print_json
from redismem.cli.transcripts import sample
from redismem.cli.tune.claim import claimed
from redismem.cli.tune.figures import Figures
from redismem.cli.tune.goals import Goal, GoalName
from redismem.cli.tune.playing import Failed, prepare
from redismem.cli.tune.running import How, Named, Run
from redismem.cli.tune.showing import (
    figures_of,
    print_again,
    print_named,
    print_picture,
    print_race,
    print_table,
    verdict,
)
from redismem.inspection.figures import plural

Goals = Annotated[
    tuple[GoalName, ...],
    Parameter(negative=(), help="Name the settings for this goal, and measure them again. May be given several times."),
]
Replace = Annotated[bool, flag("Remove what a killed run has left.")]
_How = Annotated[How, Parameter(name="*")]
_DEFAULT = How()
_LISTED_PROBLEMS = 100


async def tune(
    file: Annotated[Path, Parameter(help='One conversation per line: `{"messages": [{…}, …]}`.')],
    /,
    *,
    goal: Goals = (),
    how: _How = _DEFAULT,
    replace: Replace = False,
    yes: Yes = False,
    url: Url = None,
    as_json: AsJson = False,
) -> int:
    """Play your conversations through settings.

    The tables show what a request to the model holds with each, and what it costs. The first row has your settings now:
    those of the environment, with `--recall`. Each other row changes one thing: `window 20/6` is a threshold of 20 and
    6 recent messages, `summary 600` a total of summaries in tokens, and `recall 700` a budget.

    - `tokens`: of a request, a quarter of its bytes as JSON for OpenAI. What a model wrote is a reply; a request is
      what was sent before it.
    - `later words`: of the words of each reply that were said earlier, the share that the request still holds. A word
      of few messages counts more.
    - `marked answers`: the same for answers that you mark. A line of the file has them as
      `"questions": [{"text": "…", "answer": "…"}]`; each is asked after the last message.
    - `shared prefix`: the share of the tokens that equal the beginning of the request before, for a prompt cache.
    - `summaries`, `their tokens`: per session, what is summarised and the summary. Without `--with-model` no model is
      called; one would be called about as often.
    - `bytes`, `sessions per GB`: of a session in Redis.
    - `Redis CPU`, `client CPU`: per turn; Redis' includes summaries and is not measured on a cluster. A busy machine
      changes both by a third.
    - `p99`: of turns that are due at random moments, `--rate` of them per second, from then on; a longer `--seconds`
      makes it steadier.

    `--goal` also measures changes together, names the best settings, and measures these again beside yours, on
    conversations that they were not chosen on.

    - `cheapest`: the fewest tokens. A cached one counts as a tenth; with `--with-model`, those of summaries count too.
    - `fastest`: the least CPU of a turn, in Redis and in this process, without more round trips. Settings are compared
      side by side in many short plays, and a difference within their error counts as none.
    - `remembers`: the most later words and answers.

    Every message must come back as in the file, and each session keep the invariants of `redismem doctor --deep`.
    What is written is removed. Ctrl-C prints what is done. No text of a conversation is shown.

    Exit code 1: a message came back different.
    """
    check_file(file)
    conversations, count = await sample(file, how.conversations, prepare)
    goals = [Goal(name, how.keep, how.times_tokens, how.with_model) for name in dict.fromkeys(goal)]
    needed_bytes = sum(bytes_in_redis(len(each.said), each.text_bytes) for each in conversations)
    async with claimed(url, needed_bytes, replace=replace, yes=yes) as place:
        warn_if_embedded(place)
        run = Run(url, conversations, how, is_embedded=place.embedded)
        around = {
            "file": file.name,
            "redis": place.name,
            "played": f"{plural(len(run.chosen), 'conversation')} of {count:,}, "
            f"{sum(len(each.said) for each in run.chosen):,} messages; {how.rate:g} turns/s for {how.seconds:g} s",
            "summaries": "by your model" if how.with_model else "extractive, without a model",
        }
        try:
            await run.measure_singles()
            await run.pursue(goals)
        except (asyncio.CancelledError, Stop, Failed) as ended:
            if run.rows and run.rows[0].figures.tokens:
                _show(around | {"stopped": "before the end"}, run, as_json=as_json)
            if isinstance(ended, Failed):
                raise Stop(f"line {ended.line}: {ended}", 1) from None
            raise
        finally:
            await run.aclose()
    _show(around, run, as_json=as_json)
    complain_all([(f"line {line}", text) for line, text in run.problems[:_LISTED_PROBLEMS]], len(run.problems))
    return 1 if run.problems else 0


def _show(around: dict[str, str], run: Run, *, as_json: bool) -> None:
    if as_json:
        print_json(_document(around, run))
        return
    out = console()
    for name, text in around.items():
        out.print(f"{name:9} {text}", markup=False, soft_wrap=True)
    print_table(run.rows)
    for note in run.notes:
        out.print(note, markup=False, style="dim")
    if len(run.rows) > 1:
        print_picture(run.rows)
        print_race(run.rows)
    _print_goals(run)
    if "stopped" in around:
        return
    if not run.named:
        out.print("\n--goal cheapest, fastest or remembers names the settings for it", markup=False)
    if not run.problems:
        out.print("\nevery message came back identical, with all settings", style="bold green")


def _print_goals(run: Run) -> None:
    """Print the named settings; goals with the same ones together."""
    of_choice: dict[str, list[Named]] = {}
    for each in run.named:
        of_choice.setdefault(each.choice.name, []).append(each)
    for alike in of_choice.values():
        first, goals = alike[0], [each.goal for each in alike]
        if first.choice is run.rows[0].choice:
            names = ", ".join(goal.name for goal in goals)
            console().print(f"\n{names}: the settings that you have; nothing measured is better within the limits")
        else:
            print_named(goals, first.choice, run.rows)
            print_again(goals, first.now, first.then, run.again_on)


def _document(around: dict[str, str], run: Run) -> dict[str, Any]:
    def values(figures: Figures) -> dict[str, Any]:
        ratio = None if figures.ratio is None else asdict(figures.ratio)
        return figures_of(figures, with_model=run.how.with_model) | {"cpu_ratio": ratio}

    return around | {
        "rows": [
            {"name": row.choice.name, "set": row.choice.environment(), "recall": row.choice.recall}
            | values(row.figures)
            for row in run.rows
        ],
        "notes": run.notes,
        "problems": [{"line": line, "problem": text} for line, text in run.problems[:_LISTED_PROBLEMS]],
        "goals": [
            {
                "goal": each.goal.name,
                "named": each.choice.name,
                "set": each.choice.environment(),
                "recall": each.choice.recall,
                "again": None
                if each.then is None
                else {
                    "on": run.again_on,
                    "now": values(each.now),
                    "named": values(each.then),
                    "better": each.goal.is_better(each.then, each.now),
                    "verdict": verdict(each.goal, each.now, each.then),
                },
            }
            for each in run.named
        ],
    }
