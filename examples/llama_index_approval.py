"""An agent of LlamaIndex that waits for an approval, in whichever process the answer arrives.

python -m examples.llama_index_approval order-7 "Refund 20 and 35 euros"
python -m examples.llama_index_approval order-7 yes
"""

import asyncio  # no annotations of __future__: LlamaIndex looks for the class Context in the signature of a tool
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatMessage, MessageRole, ToolCallBlock
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.memory import Memory
from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent, JsonSerializer
from workflows.context.state_store import UnserializableKeyWarning

import redismem
from redismem.adapters.llama_index import ChatStore

warnings.simplefilter("ignore", UnserializableKeyWarning)  # of the chat memory, which is set again below


async def refund(ctx: Context, euros: int) -> str:
    """Send money back to the customer."""
    # One answer is for all that wait. A snapshot lacks requirements=, so with them a tool might run twice afterwards.
    answer = await ctx.wait_for_event(
        HumanResponseEvent, waiter_id=f"refund-{euros}", waiter_event=InputRequiredEvent(euros=euros)
    )
    # LlamaIndex runs a tool again if its process was killed: give your payment provider an idempotency key.
    return f"refunded {euros}" if answer.text == "yes" else f"kept {euros}"


def play_model(messages: Sequence[ChatMessage], **_: Any) -> ChatMessage:
    """Ask for one refund per number in the question, all at once; then tell the results."""
    if messages[-1].role == MessageRole.TOOL:
        asked_at = max(at for at, message in enumerate(messages) if message.role == MessageRole.USER)
        results = [message.content or "" for message in messages[asked_at:] if message.role == MessageRole.TOOL]
        return ChatMessage(role="assistant", content=f"Done: {', '.join(results)}")
    amounts = [word for word in (messages[-1].content or "").split() if word.isdigit()]
    calls = [
        ToolCallBlock(tool_call_id=f"{len(messages)}-{amount}", tool_name="refund", tool_kwargs={"euros": int(amount)})
        for amount in amounts
    ]
    return ChatMessage(role="assistant", blocks=calls)


def make_agent() -> FunctionAgent:
    model = MockFunctionCallingLLM(response_generator=play_model)  # yours is OpenAI(…) of llama-index-llms-openai
    return FunctionAgent(tools=[refund], llm=model, streaming=False)


async def ask(session: redismem.Session, memory: Memory, question: str) -> str:
    """Run the agent until it has an answer or waits for approvals; then store a snapshot of it."""
    run = make_agent().run(question, memory=memory)
    amounts: list[int] = []
    async for event in run.stream_events():
        if isinstance(event, InputRequiredEvent):
            amounts.append(event.euros)
            if len(amounts) == await run.ctx.store.get("num_tool_calls"):
                snapshot = run.ctx.to_dict(serializer=JsonSerializer())
                await run.cancel_run()
                await session.update(merge={"paused": snapshot}, waiting="approval")
                return f"May I? {', '.join(map(str, amounts))}"
    return str(await run)


async def resume(session: redismem.Session, memory: Memory, params: dict[str, Any], text: str) -> str:
    """Give the answer to the agent that waits for it, and remove the snapshot."""
    answer = (await memory.aget())[-1]
    if answer.role != MessageRole.ASSISTANT:  # else a process was killed between the answer and the removal
        agent = make_agent()
        ctx = Context.from_dict(agent, params["paused"], serializer=JsonSerializer())
        run = agent.run(ctx=ctx)
        await run.ctx.store.set("memory", memory)
        run.ctx.send_event(HumanResponseEvent(text=text))
        await run
        answer = (await memory.aget())[-1]
    await session.update(merge={"paused": redismem.UNSET}, waiting=None)
    return answer.content or ""


async def main(order: str, text: str) -> int:
    async with redismem.Memory.connect() as connected:  # to REDISMEM_URL
        store = ChatStore(memory=connected)
        memory = Memory.from_defaults(session_id=order, chat_store=store, token_limit=30_000)
        session = connected.session(f"llama_index:{order}")
        params = await session.params()
        is_waiting = "paused" in params
        print(await (resume(session, memory, params, text) if is_waiting else ask(session, memory, text)))
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python -m examples.llama_index_approval ORDER TEXT")
    sys.exit(asyncio.run(main(*sys.argv[1:])))
