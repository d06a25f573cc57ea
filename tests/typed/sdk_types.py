"""A caller with strict types that uses redismem with OpenAI's, Anthropic's and Google's SDKs. Checked, never run.

mypy checks this file with all the others; `test_typed.py` has both mypy and pyright check it in strict mode.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict, assert_type

from anthropic import Anthropic
from anthropic.types import MessageParam
from google import genai
from google.genai import types
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletion, ChatCompletionMessageParam, ChatCompletionUserMessageParam

from redismem import Memory, Message
from redismem.blocking import memory as blocking


class OwnMessage(TypedDict):
    role: str
    content: str


@dataclass
class Note:
    role: str
    content: str


async def with_openai(memory: Memory, client: AsyncOpenAI, asked: ChatCompletionMessageParam) -> str:
    session = memory.session("user-42")
    user: ChatCompletionUserMessageParam = {"role": "user", "content": "Where is my order?"}
    several: list[ChatCompletionMessageParam] = [user, asked]
    context = await session.append_and_read(user, asked, *several, id="1")
    completion = await client.chat.completions.create(model="m", messages=context.to_openai())
    assert_type(completion, ChatCompletion)
    await session.append(completion.choices[0].message, merge={"order": "O-1"})
    messages: list[ChatCompletionMessageParam] = context.to_openai()
    messages.append(user)
    return completion.choices[0].message.content or ""


def with_openai_blocking(memory: blocking.Memory, client: OpenAI) -> None:
    context = memory.session("user-42").read()
    stream = client.chat.completions.create(model="m", messages=context.to_openai(), stream=True)
    for chunk in stream:
        assert_type(chunk.id, str)


async def with_anthropic(memory: Memory, client: Anthropic, asked: MessageParam) -> None:
    session = memory.session("user-42")
    context = await session.append_and_read(asked)
    answer = client.messages.create(model="m", max_tokens=9, **context.to_anthropic())
    await session.append(answer)
    await session.append({"role": "assistant", "content": answer.content})


async def with_gemini(memory: Memory, client: genai.Client) -> None:
    session = memory.session("user-42")
    context = await session.append_and_read(types.Content(role="user", parts=[types.Part(text="Hello")]))
    prompt = context.to_gemini()
    answer = client.models.generate_content(  # pyright: ignore[reportUnknownMemberType] (its own types are not strict)
        model="m",
        contents=prompt["contents"],
        config=types.GenerateContentConfig(system_instruction=prompt.get("system_instruction")),
    )
    if answer.candidates and answer.candidates[0].content is not None:
        await session.append(answer.candidates[0].content)


async def with_ones_own(memory: Memory, own: OwnMessage, plain: dict[str, str], note: Note) -> None:
    session = memory.session("user-42")
    await session.append(own, plain, note, Message("user", "hello"), {"role": "user", "content": ["a", 1]})
    Message.from_openai(own)
