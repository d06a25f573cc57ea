"""A turn: store the question, run the model and its tools, and store each step.

Any process can continue a turn that broke off, from its last stored step. The question and the results of tools have
ids, made of the turn's id and the tool call's, so they are stored once. A step of the model is stored only if nothing
was appended since the model was asked.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any

from openai import AsyncOpenAI
from openai.lib.streaming.chat import AsyncChatCompletionStream

from examples.fastapi_chat import images
from examples.fastapi_chat.problems import Refused
from examples.fastapi_chat.shop import TOOLS, Shop
from redismem import Conflict, Context, IdReused, Session

MODEL = os.environ.get("OPENAI_MODEL", "gpt-5-mini")
SYSTEM: Any = {"role": "system", "content": "You answer customers of a bicycle shop, in two sentences at most."}
STEPS_LIMIT = 6
"""A step with tools is two appends. A session remembers its last 16 appends, so those of a turn fit."""


class Turn:
    """One turn of a chat."""

    def __init__(self, session: Session, model: AsyncOpenAI, shop: Shop, id: str) -> None:
        self._session = session
        self._model = model
        self._shop = shop
        self._id = id

    async def begin(self, question: dict[str, Any]) -> Context:
        """Store the question, once however often the turn is sent, and return the context after it."""
        try:
            return await self._session.append_and_read(question, id=f"{self._id}:user")
        except IdReused:
            raise Refused(422, "this id was used for another question") from None

    async def answer(self, context: Context) -> AsyncIterator[str]:
        """Yield the text of the answer, beginning with the steps that an earlier try has stored."""
        assert context.receipt is not None  # an append always has one
        asked_seq = context.receipt.last_seq
        steps = [message for message in context.messages if message.seq > asked_seq and message.role == "assistant"]
        for stored in steps:
            yield stored.content or ""
        for step in range(len(steps), STEPS_LIMIT + 1):
            last = context.messages[-1]
            if last.tool_calls:
                context = await self._run_tools(last.tool_calls, context)
            elif last.role == "assistant":
                return
            finish_reason = None
            async with await self._ask(context, may_call=step < STEPS_LIMIT) as stream:
                async for event in stream:
                    if event.type == "content.delta":
                        yield event.delta
                    elif event.type == "chunk" and event.chunk.choices:
                        finish_reason = event.chunk.choices[0].finish_reason
                if finish_reason is None:
                    raise Refused(502, "the model's answer broke off")
                message = (await stream.get_final_completion()).choices[0].message
            if not (message.content or message.refusal or message.tool_calls):
                raise Refused(502, "the model gave an empty answer")  # providers refuse one in later requests
            context = await self._session.append_and_read(message, expect=context)

    async def _ask(
        self, context: Context, may_call: bool
    ) -> AbstractAsyncContextManager[AsyncChatCompletionStream[None]]:
        messages = await images.load(self._session.id, context.to_openai())
        return self._model.chat.completions.stream(
            model=MODEL, messages=[SYSTEM, *messages], tools=TOOLS, tool_choice="auto" if may_call else "none"
        )

    async def _run_tools(self, calls: list[dict[str, Any]], context: Context) -> Context:
        results = await self._shop.run_all(calls, self._id)
        results_id = f"{self._id}:{calls[0]['id']}:results"
        try:
            return await self._session.append_and_read(*results, id=results_id, expect=context)
        except Conflict as conflict:
            if conflict.cleared:  # the chat was deleted
                raise
            # The tools did what they did, even if the user has sent another message meanwhile.
            return await self._session.append_and_read(*results, id=results_id)
