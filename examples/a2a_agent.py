"""An A2A agent on any number of replicas: a task waits for a person, and whichever replica is asked next goes on.

python -m examples.a2a_agent anna "Refund 20 euros"
python -m examples.a2a_agent anna yes

Each run is a replica that takes one message of a person. `yes` or `no` answers the person's waiting task.
"""

from __future__ import annotations

import asyncio
import sys
import uuid

from a2a.auth.user import User
from a2a.helpers.proto_helpers import new_task_from_user_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.context import ServerCallContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import TaskUpdater
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    Task,
    TaskState,
)

from redismem import Memory, StoreUnavailable
from redismem.adapters.a2a import PushNotificationConfigStore, TaskEventStream, VersionedTaskStore

CARD = AgentCard(
    name="Refunds",
    description="Refunds what a person approves.",
    version="1.0.0",
    capabilities=AgentCapabilities(streaming=True, push_notifications=True),
    supported_interfaces=[
        AgentInterface(protocol_binding="JSONRPC", protocol_version="1.0", url="https://a2a.example")
    ],
    skills=[AgentSkill(id="refund", name="Refund", description="Refunds an amount.", tags=["money"])],
    default_input_modes=["text"],
    default_output_modes=["text"],
)


class Person(User):
    """A user whom your login has authenticated."""

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def is_authenticated(self) -> bool:
        return True

    @property
    def user_name(self) -> str:
        return self._name


class Refunds(AgentExecutor):
    """Asks for an approval of each refund. All that it knows of a task is in the task."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        if context.message is None:
            return
        task = context.current_task
        if task is None:
            task = new_task_from_user_message(context.message)
            await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        said = context.get_user_input()
        if said not in ("yes", "no"):
            asked = updater.new_agent_message([Part(text=f"Approve: {said}? Answer yes or no.")])
            await updater.requires_input(asked)
        else:
            request = task.history[0].parts[0].text
            done = updater.new_agent_message([Part(text=f"{request}: {'done' if said == 'yes' else 'refused'}.")])
            await updater.complete(done)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Do nothing: the task store has the outcome."""


def build_handler(memory: Memory, executor: AgentExecutor | None = None, poll_s: float = 0.25) -> DefaultRequestHandler:
    """Return the handler of a replica, which the routes of your server call."""
    return DefaultRequestHandler(
        agent_executor=executor or Refunds(),
        task_store=VersionedTaskStore(memory=memory),
        event_stream=TaskEventStream(memory=memory, poll_s=poll_s),
        push_config_store=PushNotificationConfigStore(memory=memory),
        agent_card=CARD,
    )


async def answer(handler: DefaultRequestHandler, user: str, text: str) -> str:
    call = ServerCallContext(user=Person(user))
    message = Message(message_id=str(uuid.uuid4()), role=Role.ROLE_USER, parts=[Part(text=text)])
    if text in ("yes", "no"):
        waiting = ListTasksRequest(status=TaskState.TASK_STATE_INPUT_REQUIRED, page_size=1)
        listed = await handler.on_list_tasks(waiting, call)
        if not listed.tasks:
            return "no task waits"
        message.task_id, message.context_id = listed.tasks[0].id, listed.tasks[0].context_id
    result = await handler.on_message_send(SendMessageRequest(message=message), call)
    return result.status.message.parts[0].text if isinstance(result, Task) else result.parts[0].text


async def main(user: str, text: str) -> int:
    async with Memory.connect() as memory:  # at REDISMEM_URL
        handler = build_handler(memory)
        try:
            print(await answer(handler, user, text))
        except StoreUnavailable as failed:
            print(f"the memory does not answer: {failed}", file=sys.stderr)
            return 1
        finally:
            await handler.aclose()
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python -m examples.a2a_agent USER TEXT")
    sys.exit(asyncio.run(main(*sys.argv[1:])))
