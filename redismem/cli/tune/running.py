"""Run the plays of `redismem tune` one after another: each single change, joined ones, and the named settings again."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from redismem.cli.options import flag, within
from redismem.cli.place import open_memory
from redismem.cli.terminal import Stop
from redismem.cli.tune.choices import Choice, kinds
from redismem.cli.tune.claim import NAMESPACE, PLAYED
from redismem.cli.tune.figures import Figures
from redismem.cli.tune.goals import Goal, Row
from redismem.cli.tune.playing import Conversation, Failed, Play
from redismem.cli.tune.racing import ROUNDS, RUNNERS, groups
from redismem.events import Event
from redismem.inspection.figures import plural
from redismem.inspection.servers import server_cpu_s
from redismem.memory.memory import Memory
from redismem.models import open_extractive
from redismem.originals.dictionaries import Dictionary
from redismem.settings.settings import Settings

_WITHOUT_MODEL = {"model_provider": "extractive", "model": None, "model_api_key": None, "model_base_url": None}
_IDLE_S = 0.5
_MOST_IDLE_SHARE = 0.005
"""More is the work of other clients, which comes and goes."""
_LEAST_SPLIT = 4
"""The conversations from which the named settings are measured on others than they were chosen on."""


@dataclass(frozen=True, slots=True)
class How:
    """The options of a run."""

    recall: Annotated[int, within(0, 1_000_000, "Token budget of recall in your turns now; 0 is none.")] = 0
    keep: Annotated[float, within(0, 1, "cheapest, fastest: share of what is held now that must be held.")] = 0.95
    times_tokens: Annotated[float, within(0.1, 1_000, "remembers: most tokens of a request, as a multiple of now.")] = 2
    conversations: Annotated[int, within(1, 2_000, "Conversations to play, spread over the file.")] = 40
    rate: Annotated[float, within(0.1, 100_000, "Your turns per second, for p99.")] = 100
    seconds: Annotated[float, within(0, 600, "Seconds at that rate for each choice; 0 measures no p99.")] = 2
    with_model: Annotated[bool, flag("Let your model (REDISMEM_MODEL_PROVIDER, …) write the summaries.")] = False


@dataclass(frozen=True, slots=True)
class Named:
    """The settings of a goal, and both sides measured again. `then` is `None` if they were not."""

    goal: Goal
    choice: Choice
    now: Figures
    then: Figures | None


class Run:
    """A run over the conversations of a file. `rows` grows with each play; the first row has the settings now."""

    def __init__(self, url: str | None, conversations: Sequence[Conversation], how: How, *, is_embedded: bool) -> None:
        every = random.Random(len(conversations)).sample(conversations, len(conversations))
        is_split = len(every) >= _LEAST_SPLIT
        self.chosen, self._others = (every[::2], every[1::2]) if is_split else (every, every)
        self.again_on = (
            f"on {plural(len(self._others), 'conversation')} that nothing was chosen on"
            if is_split
            else "on the same conversations: the file has fewer than four"
        )
        self.how = how
        self.rows: list[Row] = []
        self.named: list[Named] = []
        self.notes: list[str] = []
        self.problems: list[tuple[int, str]] = []
        """The lines that did not come back identical or sound, each with its choice and the reason."""
        self._url = url
        self._overrides = PLAYED if how.with_model else PLAYED | _WITHOUT_MODEL
        self._settings = Settings(**self._overrides)
        self._dictionary: Dictionary | None = None
        self._beside = open_extractive(in_child=not is_embedded)  # as `redismem serve` does
        self._idle_share = 0.0
        self._sent = 0
        self._begin_step(0)

    async def measure_singles(self) -> None:
        """Measure the settings now, then each single change.

        Raises:
            Stop: if a conversation cannot be played with the settings now.
        """
        async with self._open(Choice("", {}, 0)) as memory:
            await self._measure_idle(memory)
            if self._settings.train_dictionaries and self._settings.keep_originals:
                await self._train(memory)
        choices = [each for of_kind in kinds(self._settings, self.how.recall).values() for each in of_kind]
        if self._dictionary is None:
            choices = [each for each in choices if "train_dictionaries" not in each.settings]
        self._begin_step(len(choices) + 1)
        if not await self._measure(Choice("now", {}, self.how.recall, 0)):
            raise Stop(self.notes[-1], 1)
        if not self.rows[0].figures.tokens:
            raise Stop("no message of the file is a request to a model: roles are user, assistant, …", 2)
        if self.rows[0].figures.server_us is None:
            missing = "not measured on a cluster, on an embedded store, or without the right to INFO"
            self.notes.append(f"Redis CPU: {missing}; the client's alone is compared")
        if not any(each.questions for each in self.chosen):
            self.notes.append('marked answers: none; "questions" in a line marks them (--help)')
        for choice in choices:
            await self._measure(choice)

    async def pursue(self, goals: Sequence[Goal]) -> None:
        """Measure joined changes for each goal, name the best settings, and measure these again beside those now."""
        now = self.rows[0]
        for goal in goals:
            best = await self._find_best(goal)
            self.named.append(Named(goal, best.choice, now.figures, None))
        sides = {choice.name: choice for choice in [now.choice, *(each.choice for each in self.named)]}
        if len(sides) == 1:
            return
        self._begin_step(len(sides))
        again = {name: await self._play(choice, self._others, f"again: {name}") for name, choice in sides.items()}
        await self._race([Row(sides[name], each) for name, each in again.items()], self._others)
        for place, each in enumerate(self.named):
            if each.choice is not now.choice:
                self.named[place] = replace(each, now=again[now.choice.name], then=again[each.choice.name])

    async def _find_best(self, goal: Goal) -> Row:
        is_raced = goal.name == "fastest"
        if is_raced:
            await self._race(self.rows, self.chosen)
        candidates = goal.candidates(self.rows, self._settings, self.how.recall)
        measured = {row.choice.name for row in self.rows}
        self._begin_step(len(candidates))
        for choice in candidates:
            if choice.name not in measured:
                await self._measure(choice)
        if is_raced:
            now, *others = self.rows
            for row in others:
                row.figures.heats.clear()
            allowed = [row for row in others if goal.allows(row.figures, now.figures)]
            joined = [row for row in allowed if row.figures.ratio is None]
            fast = sorted((row for row in allowed if goal.is_better(row.figures, now.figures)), key=goal.rank)
            await self._race([now, *joined, *fast[:RUNNERS]], self.chosen)
        return goal.best(self.rows)

    async def _race(self, rows: Sequence[Row], conversations: Sequence[Conversation]) -> None:
        """Compare the CPU of turns with that of the first row, in many short plays that alternate between the rows."""
        every = groups(conversations, [each.requests for each in conversations])
        now, *others = rows
        for row in rows:
            row.figures.heats.clear()
        for number in range(ROUNDS):
            runners = [now, *others]
            self._begin_step((ROUNDS - number) * len(runners) * len(every))
            for place, group in enumerate(every):
                for row in runners if (number + place) % 2 else runners[::-1]:
                    label = f"CPU of turns: {row.choice.name}"
                    heat = await self._play(row.choice, group, label, is_heat=True)
                    row.figures.heats.append((heat.client(), heat.server_us))
            for row in runners:
                row.figures.ratio = row.figures.ratio_to(now.figures)
            others.sort(key=lambda row: row.figures.ratio.middle if row.figures.ratio else 1)
            del others[max(RUNNERS, len(others) // 2) :]

    async def _measure(self, choice: Choice) -> bool:
        """Add a row, or a note if a conversation is refused. True if it was measured."""
        try:
            self.rows.append(Row(choice, await self._play(choice, self.chosen, choice.name)))
        except Failed as refused:
            self.notes.append(f"{choice.name}: not measured: line {refused.line}: {refused}")
            return False
        return True

    async def _play(
        self, choice: Choice, conversations: Sequence[Conversation], label: str, *, is_heat: bool = False
    ) -> Figures:
        try:
            async with self._open(choice) as memory:
                play = Play(memory, choice, conversations, self._beside, lambda: self._sent)
                play.figures.idle_share = self._idle_share
                with _progress(label, len(conversations), self._left, self._seconds_left()) as advance:
                    if is_heat:
                        return await play.heat(self._dictionary, advance)
                    figures = await play.run(self.how.rate, self.how.seconds, self._dictionary, advance)
                self.problems += [(line, f"{choice.name}: {text}") for line, text in figures.differences]
                if figures.opened is not None and (failures := figures.opened.failures):
                    failed = ", ".join(f"{count:,} {error}" for error, count in failures.items())
                    self.notes.append(f"{label}: turns that failed at the rate: {failed}")
                return figures
        finally:
            self._left -= 1
            self._done += 1

    @contextlib.asynccontextmanager
    async def _open(self, choice: Choice) -> AsyncIterator[Memory]:
        overrides = self._overrides | dict(choice.settings)
        async with open_memory(self._url, NAMESPACE, self._count, **overrides) as (memory, _):
            yield memory

    def _count(self, event: Event) -> None:
        self._sent += event.sent_count

    async def _measure_idle(self, memory: Memory) -> None:
        """Measure the share of a core that Redis uses for itself."""
        before_s = await server_cpu_s(memory.store)
        await asyncio.sleep(_IDLE_S)
        after_s = await server_cpu_s(memory.store)
        if before_s is not None and after_s is not None:
            self._idle_share = min(_MOST_IDLE_SHARE, (after_s - before_s) / _IDLE_S)

    async def aclose(self) -> None:
        """End the child process that writes summaries."""
        await self._beside.aclose()

    def _begin_step(self, count: int) -> None:
        """Note that this many plays of about the same length begin."""
        self._left, self._done, self._begun_s = count, 0, time.monotonic()

    def _seconds_left(self) -> float | None:
        return self._left * (time.monotonic() - self._begun_s) / self._done if self._done else None

    async def _train(self, memory: Memory) -> None:
        """Train the dictionary that a namespace would soon have, on conversations that are not played with it."""
        with _progress("training a dictionary", len(self._others), 0, None):
            try:
                self._dictionary = await Play(memory, Choice("", {}, 0), self._others, self._beside, int).train()
            except Failed as refused:
                raise Stop(f"line {refused.line}: {refused}", 1) from None
        if self._dictionary is None:
            self.notes.append("dictionary: too few conversations to train one on, or it would not help")


@contextlib.contextmanager
def _progress(label: str, count: int, left: int, seconds: float | None) -> Iterator[Callable[[int], None]]:
    """Show a play and its conversations on one line of stderr, if that is a terminal, and erase it at the end."""
    is_terminal = sys.stderr.isatty()
    later = f"; {left} to go" if left else ""
    later += f", about {max(1, round(seconds / 60))} min" if seconds is not None else ""

    def advance(played: int) -> None:
        if is_terminal:
            print(f"\r\x1b[K{label}: {played} of {count}{later}", end="", file=sys.stderr, flush=True)

    try:
        advance(0)
        yield advance
    finally:
        if is_terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
