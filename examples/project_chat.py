"""A team's assistant on the terminal: what is decided in one chat, it knows in every other.

Decisions and tasks are items of a project, not messages: they stay when a chat is summarised, evicted or cleared. The
newest ones, and those that a question mentions, are in the prompt of each turn.

    python -m examples.project_chat apollo anna
"""

from __future__ import annotations

import json
import os
import sys
import uuid
from typing import Any

from openai import OpenAI, OpenAIError

from redismem import RedismemError
from redismem.blocking import Memory, Project, Session

MODEL = os.environ.get("OPENAI_MODEL", "gpt-5-mini")
SYSTEM: Any = {"role": "system", "content": "You assist a software team. Record what it decides, and its tasks."}
PROJECT_TOKENS = 500
STEPS_LIMIT = 5


def define_tool(name: str, description: str, *arguments: str) -> Any:
    properties = {argument: {"type": "string"} for argument in arguments}
    parameters = {"type": "object", "properties": properties, "required": arguments, "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


TOOLS = [
    define_tool("record_decision", "Record what the team has decided, and why.", "title", "rationale"),
    define_tool("add_task", "Add a task that somebody has to do.", "title", "assignee"),
]


def take_turn(session: Session, project: Project, model: OpenAI, text: str) -> str:
    """Ask the model until it calls no more tools. Raises RedismemError and OpenAIError."""
    question, reply = {"role": "user", "content": text}, ""
    with session.turn(question, id=uuid.uuid4().hex, project=project, project_tokens=PROJECT_TOKENS) as turn:
        messages = [SYSTEM, *turn.context.to_openai()]
        for _ in range(STEPS_LIMIT):
            answer = model.chat.completions.create(model=MODEL, messages=messages, tools=TOOLS).choices[0].message
            if not answer.tool_calls:
                reply = answer.content or ""
                turn.write(reply)
                break
            step = [answer.model_dump(exclude_none=True)]
            step += [run_tool(project, call.model_dump()) for call in answer.tool_calls]
            turn.append(*step)  # the calls and their results, all or nothing
            messages += step
        if not reply:
            raise OpenAIError("the model did not come to an end")
    return reply


def run_tool(project: Project, call: dict[str, Any]) -> dict[str, Any]:
    """Carry out a call, and return its result as a message. The model reads errors, and may correct its call."""
    function = call["function"]
    try:
        content = change(project, function["name"], **json.loads(function["arguments"]))
    except (RedismemError, TypeError, ValueError) as error:
        content = f"This failed: {error}"
    return {"role": "tool", "tool_call_id": call["id"], "content": content}


def change(project: Project, name: str, title: str, rationale: str = "", assignee: str = "") -> str:
    """Make an item, unless there is one of that title: models repeat themselves."""
    if name == "record_decision":
        if any(decision.title == title for decision in project.decisions.active()):
            return "This is already recorded."
        return f"Recorded as {project.decisions.create(title, rationale=rationale, status='accepted').id}."
    if name == "add_task":
        if any(task.title == title for task in project.tasks.active()):
            return "There is such a task already."
        return f"Added as {project.tasks.create(title, assignee=assignee).id}."
    raise ValueError(f"there is no tool {name}")


def main(project_name: str = "apollo", chat: str = "me") -> None:
    with OpenAI() as model, Memory.connect() as memory:
        project, session = memory.project(project_name), memory.session(chat)
        while text := sys.stdin.readline().strip():  # an empty line ends it
            try:
                print(take_turn(session, project, model, text), flush=True)
            except (RedismemError, OpenAIError) as error:
                print(f"Please try again: {type(error).__name__}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
