"""A flow of CrewAI that waits for an approval, and goes on in whichever process the answer arrives.

python -m examples.crewai_flow order-7 "Refund 20 and 35 euros"
python -m examples.crewai_flow order-7 yes
"""

from __future__ import annotations

import asyncio
import os
import sys

os.environ.setdefault("CREWAI_DISABLE_TELEMETRY", "true")  # before CrewAI is imported

from crewai.flow.async_feedback.types import HumanFeedbackPending, PendingFeedbackContext
from crewai.flow.flow import Flow, listen, start
from crewai.flow.human_feedback import HumanFeedbackResult, human_feedback
from pydantic import BaseModel

from redismem.adapters.crewai import FlowPersistence


class Order(BaseModel):
    """The state of the flow, which redismem keeps while the flow waits."""

    id: str = ""
    question: str = ""
    amounts: list[int] = []
    result: str = ""


class Later:
    """Lets the flow wait: the answer comes with another call, perhaps of another process."""

    def request_feedback(self, context: PendingFeedbackContext, flow: object) -> str:
        """Pause the flow. CrewAI then stores what it waits for."""
        del flow
        raise HumanFeedbackPending(context=context)


class RefundFlow(Flow[Order]):
    """Reads the amounts, asks, and pays."""

    @start()
    @human_feedback(message="May I?", provider=Later())
    def ask(self) -> str:
        """Find the amounts, and ask for all of them."""
        self.state.amounts = [int(word) for word in self.state.question.split() if word.isdigit()]
        return ", ".join(f"refund {amount}" for amount in self.state.amounts)

    @listen(ask)
    def pay(self, answer: HumanFeedbackResult) -> str:
        """Pay what was approved."""
        paid = self.state.amounts if answer.feedback == "yes" else []
        self.state.result = ", ".join(f"refunded {amount}" for amount in paid) or "Nothing was refunded."
        return self.state.result


def take_turn(persistence: FlowPersistence, order: str, text: str) -> str:
    """Answer what the order's flow waits for, or begin the flow."""
    if persistence.load_pending_feedback(order) is not None:
        flow = RefundFlow.from_pending(order, persistence, suppress_flow_events=True)
        return str(flow.resume(text))
    outcome = RefundFlow(persistence=persistence, suppress_flow_events=True).kickoff({"id": order, "question": text})
    if isinstance(outcome, HumanFeedbackPending):
        return f"{outcome.context.message} {outcome.context.method_output}"
    return str(outcome)


async def main(order: str, text: str) -> int:
    with FlowPersistence() as persistence:  # at REDISMEM_URL
        print(await asyncio.to_thread(take_turn, persistence, order, text))  # its methods block
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python -m examples.crewai_flow ORDER TEXT")
    sys.exit(asyncio.run(main(*sys.argv[1:])))
