"""An agent of the Claude Agent SDK whose session any machine resumes: Redis keeps its transcript.

python -m examples.claude_agent.agent anna "How is the weather in Oslo and Rome?"

Each run answers one question, and forgets the files of Claude Code. A program in its place plays it: without `cli_path`
and `env`, the SDK starts its own.
"""

from __future__ import annotations

import asyncio
import sys
import uuid
from pathlib import Path

from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    MirrorErrorMessage,
    TextBlock,
    get_session_info_from_store,
    project_key_for_directory,
    query,
)

from redismem import StoreUnavailable
from redismem.adapters.claude_agent_sdk import SessionStore

PLAYED = Path(__file__).with_name("played_claude.py")


async def answer(store: SessionStore, user: str, question: str) -> str:
    session_id = str(uuid.uuid5(uuid.NAMESPACE_URL, user))
    options = ClaudeAgentOptions(session_store=store, cli_path=PLAYED)
    options.env = {"PLAYED_PROJECT": project_key_for_directory(options.cwd)}
    if await get_session_info_from_store(store, session_id) is None:
        options.session_id = session_id
    else:
        options.resume = session_id
    said = ""
    async for message in query(prompt=question, options=options):
        if isinstance(message, AssistantMessage):
            said += "".join(block.text for block in message.content if isinstance(block, TextBlock))
        elif isinstance(message, MirrorErrorMessage):
            said += " (the memory did not take this turn)"
    return said


async def main(user: str, question: str) -> int:
    async with SessionStore() as store:  # at REDISMEM_URL
        try:
            print(await answer(store, user, question))
        except StoreUnavailable as failed:
            print(f"the memory does not answer: {failed}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python -m examples.claude_agent.agent USER QUESTION")
    sys.exit(asyncio.run(main(*sys.argv[1:])))
