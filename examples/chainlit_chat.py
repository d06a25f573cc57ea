"""A chat on Chainlit whose users and threads outlive its processes: any process lists, continues and deletes them.

CHAINLIT_AUTH_SECRET=a-secret-of-32-characters-or-more chainlit run examples/chainlit_chat.py
"""

from __future__ import annotations

import chainlit as cl
from chainlit.types import ThreadDict

from redismem.adapters.chainlit import DataLayer


@cl.data_layer
def open_data_layer() -> DataLayer:
    """Open the layer, once per process, at REDISMEM_URL."""
    return DataLayer()


@cl.password_auth_callback
async def log_in(username: str, password: str) -> cl.User | None:
    """Let anybody in who knows the demo's password. Yours asks your directory."""
    return cl.User(identifier=username) if password == "demo" else None


@cl.on_chat_resume
async def resume(thread: ThreadDict) -> None:
    """Chainlit has loaded the thread from redismem; an agent would get its history here."""
    said = [step["output"] for step in thread["steps"] if step["type"] == "user_message"]
    cl.user_session.set("words", sum(len(text.split()) for text in said))


@cl.on_message
async def answer(message: cl.Message) -> None:
    """Count the words of the thread. Yours asks a model."""
    words = cl.user_session.get("words", 0) + len(message.content.split())
    cl.user_session.set("words", words)
    async with cl.Step(name="count", type="tool") as step:
        step.input, step.output = message.content, f"{words} words"
    await cl.Message(f"This thread has {words} words of yours.").send()
