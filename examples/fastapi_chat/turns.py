"""A turn: run the model and its tools, in a task that outlives the request, and pass on what they say.

Each step with tools is stored at once, the text of the answer at the end. If the process dies, the steps stay. The same
turn, sent again to any process, goes on behind them, unless a part of the answer is stored as its reply.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Any

from openai import AsyncOpenAI
from openai.types.chat import ParsedChatCompletionMessage

from examples.fastapi_chat.images import Album
from examples.fastapi_chat.problems import Refused
from examples.fastapi_chat.shop import TOOLS, Shop
from redismem import Session, Turn, TurnKnown

MODEL = os.environ.get("OPENAI_MODEL", "gpt-5-mini")
SYSTEM: Any = {"role": "system", "content": "You answer customers of a bicycle shop, in two sentences at most."}
STEPS_LIMIT = 6
RECALL_TOKENS = 1_200
log = logging.getLogger("uvicorn.error")


class Turns:
    """The turns that this process runs."""

    def __init__(self, model: AsyncOpenAI, shop: Shop) -> None:
        self._model = model
        self._shop = shop
        self._tasks: set[asyncio.Task[None]] = set()

    async def begin(self, session: Session, album: Album, turn_id: str, question: dict[str, Any]) -> None:
        """Begin a turn, and return once it runs. One that runs already or has ended is left alone.

        Raises the errors of `Session.turn`.
        """
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._run(session, album, turn_id, question, begun))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.shield(begun)

    async def _run(
        self, session: Session, album: Album, turn_id: str, question: dict[str, Any], begun: asyncio.Future[None]
    ) -> None:
        remembering: Any = {"recall": RECALL_TOKENS, "recall_scope": "owner"}  # from all chats of the user
        try:
            async with session.turn(question, id=turn_id, when_busy="wait", **remembering) as turn:
                begun.set_result(None)
                await self._answer(album, turn)
        except TurnKnown:
            begun.set_result(None)
        except Exception as error:
            if not begun.done():
                begun.set_exception(error)
            else:  # the last event says that the turn has failed
                log.warning("a turn failed: %s", type(error).__name__)  # the text of a model may quote the conversation

    async def _answer(self, album: Album, turn: Turn) -> None:
        messages = await album.load(turn.context.to_openai())
        for step in range(STEPS_LIMIT + 1):
            message = await self._ask(turn, messages, may_call=step < STEPS_LIMIT)
            if not message.tool_calls:
                return
            calls = [call.model_dump() for call in message.tool_calls]
            for call in calls:
                told = {"type": "tool_call", "id": call["id"], "name": call["function"]["name"], "done": True}
                await turn.write(told)
            results = await self._shop.run_all(calls, turn.id)
            await turn.append(message, *results)
            messages += [message.model_dump(exclude_none=True), *results]

    async def _ask(self, turn: Turn, messages: list[Any], may_call: bool) -> ParsedChatCompletionMessage[None]:
        finish_reason = None
        async with self._model.chat.completions.stream(
            model=MODEL, messages=[SYSTEM, *messages], tools=TOOLS, tool_choice="auto" if may_call else "none"
        ) as stream:
            async for event in stream:
                if event.type in ("content.delta", "refusal.delta"):
                    await turn.write(event.delta)
                elif event.type == "chunk" and event.chunk.choices:
                    finish_reason = event.chunk.choices[0].finish_reason
            if finish_reason is None:
                raise Refused(502, "the model's answer broke off")
            message = (await stream.get_final_completion()).choices[0].message
        if not (message.content or message.refusal or message.tool_calls):
            raise Refused(502, "the model gave an empty answer")
        return message
