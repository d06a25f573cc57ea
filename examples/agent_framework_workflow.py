"""A workflow of Microsoft Agent Framework that waits for an approval, and goes on in another process, or after a crash.

python -m examples.agent_framework_workflow order-7 "Refund 20 and 35 euros"
python -m examples.agent_framework_workflow order-7 yes
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from typing import Never

from agent_framework import (
    Executor,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    handler,
    register_checkpoint_type,
    response_handler,
)

from redismem.adapters.agent_framework import CheckpointStorage


@dataclass
class Refund:
    """A refund that somebody approves or not. Checkpoints contain it, so the framework must know the type."""

    euros: int


register_checkpoint_type(Refund)


class Read(Executor):
    """Finds the amount of each refund in the question."""

    @handler
    async def read(self, text: str, ctx: WorkflowContext[list[Refund]]) -> None:
        """Pass the refunds on to the next step."""
        await ctx.send_message([Refund(int(word)) for word in text.split() if word.isdigit()])


class Approve(Executor):
    """Waits until somebody has answered for each refund."""

    @handler
    async def ask(self, refunds: list[Refund], ctx: WorkflowContext[Refund]) -> None:
        """Ask for each of them."""
        for refund in refunds:
            await ctx.request_info(request_data=refund, response_type=bool)

    @response_handler
    async def take(self, refund: Refund, approved: bool, ctx: WorkflowContext[Refund]) -> None:
        """Pass an approved refund on."""
        if approved:
            await ctx.send_message(refund)


class Pay(Executor):
    """Pays what was approved."""

    @handler
    async def pay(self, refund: Refund, ctx: WorkflowContext[Never, str]) -> None:
        """Pay it."""
        await ctx.yield_output(f"refunded {refund.euros}")


def build(storage: CheckpointStorage) -> Workflow:
    """Return the workflow with checkpoints in a storage. The name is what its checkpoints are found by."""
    read, approve, pay = Read("read"), Approve("approve"), Pay("pay")
    builder = WorkflowBuilder(name="refund", start_executor=read, checkpoint_storage=storage, output_from=[pay])
    return builder.add_edge(read, approve).add_edge(approve, pay).build()


async def take_turn(storage: CheckpointStorage, text: str) -> str:
    """Go on from the latest checkpoint, if it waits for an answer, or begin with a new question."""
    workflow, latest = build(storage), await storage.get_latest(workflow_name="refund")
    waiting = [] if latest is None else list(latest.pending_request_info_events)
    if latest is not None and waiting:
        answers = dict.fromkeys(waiting, text == "yes")
        result = await workflow.run(checkpoint_id=latest.checkpoint_id, responses=answers)
    else:
        result = await workflow.run(text)
    requests = result.get_request_info_events()
    if requests:
        return "May I? " + ", ".join(f"refund {request.data.euros}" for request in requests)
    return ", ".join(map(str, result.get_outputs())) or "Nothing was refunded."


async def main(order: str, text: str) -> int:
    async with CheckpointStorage(order) as storage:  # at REDISMEM_URL
        print(await take_turn(storage, text))
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python -m examples.agent_framework_workflow ORDER TEXT")
    sys.exit(asyncio.run(main(*sys.argv[1:])))
