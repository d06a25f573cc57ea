"""An agent of Google ADK that recalls in each session what its user said in any other.

python -m examples.google_adk_memory anna monday "The hinge of my left door broke."
python -m examples.google_adk_memory anna tuesday "Which door has the broken hinge?"

Each run answers one question of a user in a session, and adds the session to the user's memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.agents.callback_context import CallbackContext
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.tools.preload_memory_tool import PreloadMemoryTool
from google.genai import types

from redismem import StoreUnavailable
from redismem.adapters.google_adk import MemoryService, SessionService

APP = "support"


class PlayedModel(BaseLlm):
    """Says what it was given of earlier sessions. Yours is "gemini-flash-latest"."""

    async def generate_content_async(self, llm_request: Any, *_: Any, **__: Any) -> AsyncGenerator[LlmResponse, None]:
        given = [part.text or "" for content in llm_request.contents for part in content.parts or ()]
        recalled = "".join([*given, str(llm_request.config.system_instruction)]).partition("<PAST_CONVERSATIONS>")[2]
        said = [line.removeprefix("user: ") for line in recalled.splitlines() if line.startswith("user: ")]
        text = f"You told me: {' '.join(said)}" if said else "You told me nothing of it yet."
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=text)]))


async def remember(callback_context: CallbackContext) -> None:
    """Add the session to the user's memory after each turn: its new events alone are written."""
    await callback_context.add_session_to_memory()


async def answer(sessions: SessionService, memories: MemoryService, user: str, session: str, question: str) -> str:
    agent = LlmAgent(
        name="support",
        model=PlayedModel(model="played"),
        tools=[PreloadMemoryTool()],
        after_agent_callback=remember,
    )
    runner = Runner(app_name=APP, agent=agent, session_service=sessions, memory_service=memories)
    if await sessions.get_session(app_name=APP, user_id=user, session_id=session) is None:
        with contextlib.suppress(AlreadyExistsError):  # another process was faster
            await sessions.create_session(app_name=APP, user_id=user, session_id=session)
    message = types.Content(role="user", parts=[types.Part(text=question)])
    text = ""
    async for event in runner.run_async(user_id=user, session_id=session, new_message=message):
        if event.is_final_response():
            parts = event.content.parts if event.content else None
            text = (parts and parts[0].text) or text
    return text


async def main(user: str, session: str, question: str) -> int:
    async with SessionService() as sessions, MemoryService() as memories:  # at REDISMEM_URL, over one connection
        try:
            print(await answer(sessions, memories, user, session, question))
        except StoreUnavailable as unavailable:
            print(f"the memory does not answer: {unavailable.text}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: python -m examples.google_adk_memory USER SESSION QUESTION")
    sys.exit(asyncio.run(main(*sys.argv[1:])))
