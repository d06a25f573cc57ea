"""An agent of Strands whose conversations outlive its processes, with a snapshot of each turn to go back to.

python -m examples.strands_agent user-42 "How is the weather in Oslo and Rome?"
python -m examples.strands_agent user-42 back

Each run answers one question. `back` goes back to the snapshot before the last turn.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

from strands import Agent, tool
from strands.models import Model
from strands.session import SnapshotSessionManager
from strands.types.exceptions import StorageError

from redismem.adapters.strands import Storage

DEGREES = {"Oslo": 4, "Rome": 19, "Lima": 22}


@tool
def look_up_weather(city: str) -> str:
    """Return the weather in a city."""
    return f"{DEGREES[city]} degrees in {city}"


class PlayedModel(Model):
    """Calls the tool for each city of the question, all at once; then answers. Yours is BedrockModel or another."""

    def update_config(self, **_: Any) -> None:
        pass

    def get_config(self) -> dict[str, Any]:
        return {}

    def structured_output(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    async def stream(self, messages: Any, *_: Any, **__: Any) -> AsyncIterator[Any]:
        last = messages[-1]["content"]
        results = [block["toolResult"]["content"][0]["text"] for block in last if "toolResult" in block]
        questions = [message for message in messages if message["role"] == "user" and "text" in message["content"][0]]
        cities = [] if results else [city for city in DEGREES if city in last[0].get("text", "")]
        yield {"messageStart": {"role": "assistant"}}
        for city in cities:
            call = {"name": "look_up_weather", "toolUseId": f"{len(messages)}-{city}"}
            yield {"contentBlockStart": {"start": {"toolUse": call}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps({"city": city})}}}}
            yield {"contentBlockStop": {}}
        if not cities:
            yield {"contentBlockStart": {"start": {}}}
            text = f"Question {len(questions)}: {', '.join(results) or 'no city'}."
            yield {"contentBlockDelta": {"delta": {"text": text}}}
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if cities else "end_turn"}}


async def answer(storage: Storage, user: str, question: str) -> str:
    sessions = SnapshotSessionManager(user, storage=storage, snapshot_trigger=lambda **_: True)
    agent = Agent(
        PlayedModel(), tools=[look_up_weather], session_manager=sessions, callback_handler=None, agent_id="weather"
    )
    if question != "back":
        return str(await agent.invoke_async(question)).strip()
    ids = await sessions.list_snapshot_ids(agent)
    if len(ids) < 2:
        return "there is no earlier turn"
    await sessions.restore_snapshot(agent, snapshot_id=ids[-2])
    await sessions.save_snapshot(agent, is_latest=True)
    return f"went back to {len(agent.messages)} messages"


async def main(user: str, question: str) -> int:
    with Storage() as storage:  # at REDISMEM_URL
        try:
            print(await answer(storage, user, question))
        except StorageError as failed:
            print(f"the memory does not answer: {failed}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python -m examples.strands_agent USER QUESTION")
    sys.exit(asyncio.run(main(*sys.argv[1:])))
