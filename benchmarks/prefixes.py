"""Measure the share of each request that a provider's prompt cache finds: the beginning that equals the request before.

A generated conversation is held turn by turn, as a chat does: `append_and_read`, then the view for the provider, then
`append` of the reply. The rows: plain turns, turns with recall, and of the plain ones those that follow a summary. A
prefix is cached if it reaches the provider's minimum, rounded down to its step; both are in tokens, and a token is
four bytes of the request's JSON.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

from benchmarks.measuring import chosen_server, surroundings, table
from benchmarks.remembered.friends import friends
from benchmarks.running import load, options, over_lane, run, show_results
from redismem import Settings
from redismem.cli.tune.words import TOKEN_BYTES, equal_bytes
from redismem.context.context import Context
from redismem.workers.strategies import from_settings
from redismem.workers.summaries import Worker

RECALL_TOKENS = 700
PROVIDERS: dict[str, tuple[Callable[[Context], Any], int, int]] = {
    "OpenAI": (Context.to_openai, 1_024, 128),
    "Anthropic": (Context.to_anthropic, 1_024, 1),
    "Gemini": (Context.to_gemini, 2_048, 1),
}
"""The view, the minimum of a cached prefix, and the step in which it grows."""


class Shares:
    """The equal share of each request of one provider."""

    def __init__(self, provider: str) -> None:
        self._view, self._least, self._step = PROVIDERS[provider]
        self._before = b""
        self.tokens: list[float] = []
        self.equal: list[float] = []
        self.cached: list[float] = []

    def add(self, context: Context) -> None:
        """Compare the request with the one before."""
        request = json.dumps(self._view(context), ensure_ascii=False).encode()
        if self._before:
            equal = equal_bytes(self._before, request) // TOKEN_BYTES
            cached = equal // self._step * self._step if equal >= self._least else 0
            tokens = max(1, len(request) // TOKEN_BYTES)
            self.tokens.append(equal)
            self.equal.append(equal / tokens)
            self.cached.append(cached / tokens)
        self._before = request


async def hold(url: str, name: str, turns: int, recall: int | None) -> dict[str, tuple[Shares, list[int]]]:
    """Hold a conversation, and return the shares of each provider with the places of turns after a summary."""
    settings = Settings(shards=1)
    shares = {provider: Shares(provider) for provider in PROVIDERS}
    after_summary: list[int] = []
    async with over_lane(url, name, settings) as memory:
        strategy = from_settings(settings)
        assert strategy is not None
        worker, session, version = Worker(memory.store, strategy), memory.session("s"), None
        said = [turn.payload["content"] for turn in friends("en", 2 * turns + 2, seed=3).turns]
        for asked, answered in zip(said[::2], said[1::2], strict=False):
            context = await session.append_and_read({"role": "user", "content": asked}, recall=recall)
            for each in shares.values():
                each.add(context)
            if version is not None and context.summary_version != version:
                after_summary.append(len(next(iter(shares.values())).equal) - 1)
            version = context.summary_version
            await session.append({"role": "assistant", "content": answered})
            await worker.drain()
        await memory.session("s").clear()
    return {provider: (each, after_summary) for provider, each in shares.items()}


def summarize(shares: Shares, places: Sequence[int]) -> dict[str, float]:
    """Return the means over the turns at these places."""
    lists = {"equal_tokens": shares.tokens, "equal_share": shares.equal, "cached_share": shares.cached}
    return {name: fmean([values[at] for at in places]) if places else 0.0 for name, values in lists.items()}


def report(sides: dict[str, dict[str, dict[str, float]]]) -> str:
    rows = [
        [
            f"{provider}, {side}",
            f"{found['equal_tokens']:,.0f}",
            *(f"{found[f'{name}_share']:.2f}" for name in ("equal", "cached")),
        ]
        for side, providers in sides.items()
        for provider, found in providers.items()
    ]
    return table(["turns", "equal tokens", "share of the request", "share cached"], sorted(rows))


def main() -> None:
    parser = options("benchmarks.prefixes", __doc__ or "", rounds=1)
    asked = parser.parse_args()
    turns, name = 40 if asked.quick else 150, f"bench-{os.getpid()}"
    with chosen_server(name) as server:
        around = surroundings(server, "benchmarks.prefixes") | {"load": load()}
        sides: dict[str, dict[str, dict[str, float]]] = {"plain": {}, "recall": {}, "after a summary": {}}
        for side, recall in (("plain", None), ("recall", RECALL_TOKENS)):
            for provider, (found, after) in run(hold(server.url, f"{name}-{side}", turns, recall)).items():
                sides[side][provider] = summarize(found, range(len(found.equal)))
                if side == "plain":
                    sides["after a summary"][provider] = summarize(found, after)
    show_results(around, {"turns": turns, "shares": sides}, report(sides), asked.json)


if __name__ == "__main__":
    main()
