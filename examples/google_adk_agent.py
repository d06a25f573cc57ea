"""An agent of Google ADK whose sessions, and what it knows of its users, outlive its processes.

python -m examples.google_adk_agent anna monday "How is the weather in Oslo and Rome?"
python -m examples.google_adk_agent anna tuesday "And in Lima?"

Each run answers one question of a user in a session. The agent counts the cities of a user over all sessions.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from redismem import StoreUnavailable
from redismem.adapters.google_adk import SessionService

DEGREES = {"Oslo": 4, "Rome": 19, "Lima": 22}


def look_up_weather(city: str, tool_context: ToolContext) -> dict[str, Any]:
    """Return the weather in a city."""
    tool_context.state[f"user:seen {city}"] = True
    return {"weather": f"{DEGREES[city]} degrees in {city}"}


class PlayedModel(BaseLlm):
    """Calls the tool for each city of the question, all at once; then answers. Yours is "gemini-flash-latest"."""

    async def generate_content_async(self, llm_request: Any, *_: Any, **__: Any) -> AsyncGenerator[LlmResponse, None]:
        contents = llm_request.contents
        results = [part.function_response.response for part in contents[-1].parts if part.function_response]
        questions = [each for each in contents if each.role == "user" and each.parts[0].text]
        cities = [] if results else [city for city in DEGREES if city in (contents[-1].parts[0].text or "")]
        parts = [types.Part.from_function_call(name="look_up_weather", args={"city": city}) for city in cities]
        text = ", ".join(each["weather"] for each in results) or "no city"
        parts = parts or [types.Part(text=f"Question {len(questions)}: {text}.")]
        yield LlmResponse(content=types.Content(role="model", parts=parts))


async def answer(service: SessionService, user: str, session: str, question: str) -> str:
    agent = LlmAgent(name="weather", model=PlayedModel(model="played"), tools=[look_up_weather])
    runner = Runner(app_name="weather", agent=agent, session_service=service)
    if await service.get_session(app_name="weather", user_id=user, session_id=session) is None:
        with contextlib.suppress(AlreadyExistsError):  # another process was faster
            await service.create_session(app_name="weather", user_id=user, session_id=session)
    message = types.Content(role="user", parts=[types.Part(text=question)])
    text = ""
    async for event in runner.run_async(user_id=user, session_id=session, new_message=message):
        if event.is_final_response():
            parts = event.content.parts if event.content else None
            text = (parts and parts[0].text) or ""
    state = await service.get_user_state(app_name="weather", user_id=user)
    return f"{text} Cities so far: {len(state)}."


async def main(user: str, session: str, question: str) -> int:
    async with SessionService() as service:  # at REDISMEM_URL
        try:
            print(await answer(service, user, session, question))
        except StoreUnavailable as unavailable:
            print(f"the memory does not answer: {unavailable.text}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: python -m examples.google_adk_agent USER SESSION QUESTION")
    sys.exit(asyncio.run(main(*sys.argv[1:])))
