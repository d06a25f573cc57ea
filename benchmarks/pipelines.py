"""Calculate what a model that extracts memories from each message costs: calls, tokens and price per 1,000 messages.

No model is called. The prompts and the number of calls are those of released packages (benchmarks/remembered/
published.toml names them, with the price list), the messages those of a made-up conversation with an assistant. The
figures are lower bounds: JSON around facts, retries, hidden reasoning and the calls of a search are left out. The rows
of redismem are by the same arithmetic.
"""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.measuring import table
from benchmarks.remembered.conversation import Conversation
from benchmarks.remembered.dated import dated
from benchmarks.remembered.evidence import tokens_of
from redismem import Settings
from redismem.models.http_model import INSTRUCTION

PUBLISHED = Path(__file__).parent / "remembered" / "published.toml"


@dataclass(frozen=True)
class Cost:
    """The calls and tokens of 1,000 messages."""

    calls: float = 0
    input: float = 0
    output: float = 0
    embedded: float = 0
    fixed: float = 0
    """The input tokens of prompts that are equal in each call."""

    def dollars(self, prices: dict[str, Any], *, cached: bool) -> float:
        """Return the price; with `cached`, as if the provider's cache held each prompt."""
        priced = self.input * prices["input"] + self.output * prices["output"] + self.embedded * prices["embedding"]
        saved = self.fixed * (prices["input"] - prices["cached_input"]) if cached else 0.0
        return float((priced - saved) / 1e6)


def cost_of(pipeline: dict[str, Any], facts: dict[str, Any], turn_tokens: float) -> Cost:
    """Return the cost of a pipeline for 500 turns of two messages."""
    said = turn_tokens / pipeline["adds_per_turn"]
    told = facts["share"] * said
    facts_count = told / facts["tokens"]
    earlier = pipeline["earlier_messages"] * min(pipeline["earlier_tokens_at_most"], turn_tokens / 2)
    known = pipeline["memories"] * facts["tokens"]
    whole, each = pipeline["prompts"], pipeline["prompts_per_fact"]
    adds = 500 * pipeline["adds_per_turn"]
    sent = sum(prompt + said + earlier for prompt in whole) + known
    sent += facts_count * sum(prompt + known for prompt in each)
    return Cost(
        adds * (len(whole) + facts_count * len(each)),
        adds * sent,
        adds * told * len(whole),
        adds * (said + told) if pipeline["embeds"] else 0,
        adds * (sum(whole) + facts_count * sum(each)),
    )


def cost_of_summaries(turn_tokens: float) -> Cost:
    """Return the cost of this library's summaries if a model writes them: one for each 5 messages by default."""
    settings = Settings()
    messages = settings.threshold + 1 - settings.recent_limit
    calls = 1_000 / messages
    sent = tokens_of(INSTRUCTION) + messages * turn_tokens / 2
    return Cost(calls, calls * sent, calls * settings.summary_tokens, fixed=calls * tokens_of(INSTRUCTION))


def rows(told: Conversation, published: dict[str, Any]) -> Iterator[tuple[str, Cost]]:
    turn_tokens = 2 * fmean(tokens_of(str(turn.payload["content"])) for turn in told.turns)
    for pipeline in published["pipeline"]:
        yield pipeline["name"], cost_of(pipeline, published["facts"], turn_tokens)
    yield "redismem, a model writes the summaries", cost_of_summaries(turn_tokens)
    yield "redismem, by default", Cost()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.pipelines", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.parse_args()
    published = tomllib.loads(PUBLISHED.read_text(encoding="utf-8"))
    told, prices = dated("en", 600, with_assistant=True), published["prices"]
    for who, role in (("user", "user"), ("assistant", "assistant")):
        sizes = [tokens_of(str(turn.payload["content"])) for turn in told.turns if turn.payload["role"] == role]
        print(f"a message of the {who}: {fmean(sizes):.0f} tokens in the mean")
    print(f"prices: {prices['model']} ${prices['input']} in, ${prices['output']} out; {prices['list']}\n")
    shown = [
        [name, f"{cost.calls:,.0f}", *(f"{tokens / 1e3:,.0f}" for tokens in (cost.input, cost.output, cost.embedded))]
        + [f"${cost.dollars(prices, cached=cached):,.2f}" for cached in (False, True)]
        for name, cost in rows(told, published)
    ]
    print(table(("1,000 messages", "calls", "K in", "K out", "K embedded", "price", "prompts cached"), shown))


if __name__ == "__main__":
    main()
