"""A chat with memory: each message begins a turn, in which a model answers. It answers even if the memory fails."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from redismem.context.context import Context
from redismem.context.results import Receipt, State
from redismem.errors import (
    InvalidMessage,
    ModelFailed,
    RedismemError,
    StoreUnavailable,
    TooLarge,
    TurnLost,
    Unconfirmed,
)
from redismem.events import facts
from redismem.live.beginning import WhenBusy
from redismem.live.turn import MODEL_FAILED, Turn
from redismem.messages.message import Message
from redismem.models.tool_calls import ToolDelta, Tools
from redismem.session.background import Background
from redismem.session.paging import Scope
from redismem.session.session import Session
from redismem.slots import ASKED, Kind, Slots, Step
from redismem.web.chat import offline
from redismem.web.chat.asking import Model, ask_model
from redismem.web.chat.prompts import make_prompt
from redismem.web.http.problems import Problem
from redismem.web.http.recalled import kept_numbers, recalled_numbers

log = logging.getLogger("redismem")

Event = dict[str, Any]
Events = AsyncIterator[tuple[str, Event]]
"""The events of a turn, each with its id."""
RECALL_TOKENS = 1_200
"""The tokens of earlier messages that an answer recalls unless the server is told otherwise."""
RECALLED = "recalled"
"""The name of the event, and of the reply's metadata, that say which messages were recalled: no text."""
CLEARED = "cleared"
"""The reason of a turn that ended because its session was cleared."""
NOT_TAKEN = "the memory did not take it"
_STOPPING = "the server stopped"
_NOTICES = {
    "memory_unavailable": "The memory is unreachable right now. This answer is based on your last message only.",
    "memory_needed": "The memory is unreachable right now, and this chat needs it to answer. Please try again.",
    "memory_full": "This conversation is full. Clear it, or wait until older messages are summarised.",
    "summary_failed": "Older messages could not be summarised. Nothing is lost: they are still used in full.",
    "unconfirmed": "This is stored, but too few replicas have it yet: a failure now may lose it.",
    "degraded": "The memory is unreachable right now: this server keeps the message until it is back.",
}


@dataclass(frozen=True, slots=True)
class Question:
    """A message to answer."""

    turn_id: str
    payloads: Sequence[dict[str, Any]]
    when_busy: WhenBusy = "wait"
    project: Background | None = None
    recall: int | None = None
    """The tokens of earlier messages to recall; `None` means as many as the chat's answers recall."""
    recall_scope: Scope = "session"
    is_stored: bool = False
    """True if it is stored, and its turn begins again: it is looked at for params no more."""
    tools: Tools = ()
    """Tools of the caller, whose calls end the turn: the caller runs them."""
    expect: Receipt | None = None
    """The session as the caller has seen it; any other one refuses the turn."""

    @property
    def text(self) -> str | None:
        """The text of a single message of a user that has only a text; `None` for any others."""
        content = self.payloads[0].get("content")
        is_text = len(self.payloads) == 1 and self.payloads[0].get("role") == "user" and isinstance(content, str)
        return content if is_text else None


class Begun(NamedTuple):
    """A turn that has begun."""

    generation: str
    events: Events


class _Answer(NamedTuple):
    """An answer in progress, or one that waits for its turn."""

    namespace: str
    session: Session
    asked: Question
    begun: asyncio.Future[Begun]


@dataclass(slots=True)
class Chat:
    """All chats of one server."""

    model: Model | None = None
    slots: Slots | None = None
    instruction: str | None = None
    """The first system message, unless the session has an instruction of its own; `None` means the default."""
    max_tokens: int = 4_096
    """The maximum number of tokens of an answer."""
    project: str | None = None
    """The project that every answer gets as background, unless a message names another. `None` means no project."""
    alternate: bool = False
    """True if the model's chat template requires alternating turns, see `Context.to_openai`."""
    recall: int = RECALL_TOKENS
    """The tokens of earlier messages that each answer recalls; 0 means none."""
    recall_scope: Scope = "session"
    """The messages that answers recall for keys of one owner; for all others, those of the session."""
    _answers: dict[asyncio.Task[None], _Answer] = field(default_factory=dict)

    hidden_params: frozenset[str] = field(init=False)
    """The params whose values are never shown or given to a model."""

    def __post_init__(self) -> None:
        self.hidden_params = frozenset((ASKED, *(() if self.slots is None else self.slots.sensitive)))

    def current_wait(self, state: State) -> str | None:
        """Return the param that the chat waits for; `None` once the time for its answer is over."""
        return state.waiting_for_param if self.slots is None else self.slots.current_wait(state)

    def is_same(self, text: str | None, known: object) -> bool:
        """True if a message may equal the stored one. The placeholder of a sensitive value matches any message."""
        shown = () if self.slots is None else self.slots.shown
        return text == known or text in shown or known in shown

    async def begin(
        self, namespace: str, session: Session, asked: Question, ended: Callable[[str], object] = bool
    ) -> Begun:
        """Begin to answer a message in the background, and return once the message is stored.

        `ended` is called once, with the outcome of the turn, or with "" if it did not begin.

        Raises the errors of `Session.turn`, and Problem: stopping.
        """
        answer = _Answer(namespace, session, asked, asyncio.get_running_loop().create_future())
        task = asyncio.create_task(self._run(answer, ended))
        self._answers[task] = answer
        task.add_done_callback(lambda _: self._answers.pop(task))
        return await answer.begun

    def is_answering(self, namespace: str, session_id: str) -> bool:
        """True if this server answers a message of the session, or is about to."""
        return any((each.namespace, each.session.id) == (namespace, session_id) for each in self._answers.values())

    async def stop_before_clear(self, namespace: str, session: Session) -> None:
        """Stop the running turn of a session that is about to be cleared, and those that this server is about to begin.

        A question that is stored after the clear would begin the session anew.
        """
        while True:
            await session.stop(CLEARED)
            own = [
                each for each in self._answers.values() if (each.namespace, each.session.id) == (namespace, session.id)
            ]
            beginning = [each.begun for each in own if not each.begun.done()]
            if not beginning:
                return
            await asyncio.wait(beginning, return_when=asyncio.FIRST_COMPLETED)

    async def aclose(self, stop_s: float) -> None:
        """Wait up to `stop_s` for running answers to end. Then stop the remaining ones and store them as incomplete."""
        if self._answers:
            await asyncio.wait(self._answers, timeout=stop_s)
        for task, answer in list(self._answers.items()):
            is_stopped = False
            with contextlib.suppress(RedismemError):
                is_stopped = await answer.session.stop(_STOPPING, turn=answer.asked.turn_id)
            if not is_stopped:
                task.cancel()
        if self._answers:
            await asyncio.wait(self._answers, timeout=stop_s)
        if self.model is not None:
            await self.model.aclose()

    async def answer_alone(self, asked: Question, refused: RedismemError) -> Events:
        """Yield the events of an answer to the message alone, because the memory did not take it."""
        code = "memory_full" if isinstance(refused, TooLarge) else "memory_unavailable"
        if self._needs_memory:
            yield "", _notice(code, _NOTICES["memory_needed"] if code == "memory_unavailable" else "")
            yield "", _end("failed", NOT_TAKEN)
            return
        yield "", _notice(code)
        has_text = False
        try:
            async with contextlib.aclosing(self._pieces(None, Step(Kind.FREE, asked.text or ""), ())) as pieces:
                async for piece in pieces:
                    has_text = True
                    assert isinstance(piece, str)
                    yield "", {"type": "text", "delta": piece}
        except ModelFailed as failed:
            yield "", _explain(failed, has_text=has_text, is_stored=False)
            yield "", _end("failed", MODEL_FAILED)
        else:
            yield "", _end("done", "")

    async def _run(self, answer: _Answer, ended: Callable[[str], object]) -> None:
        begun, turn = answer.begun, None
        try:
            step = await self._step(answer)
            async with contextlib.AsyncExitStack() as stack:
                turn, is_confirmed = await self._enter(stack, answer, step)
                # Followed from before it can end.
                begun.set_result(Begun(turn.generation, await _primed(answer.session.follow(turn=turn.id))))
                if not is_confirmed:
                    await turn.write(_notice("unconfirmed"))
                await self._write_answer(turn, answer, step)
        except (Exception, asyncio.CancelledError) as error:
            if not begun.done():
                begun.set_exception(Problem("stopping") if isinstance(error, asyncio.CancelledError) else error)
            elif not isinstance(error, ModelFailed | TurnLost | Unconfirmed):
                kind = type(error).__name__
                log.warning("an answer was not stored as it should be: %s", kind, extra=facts(op="chat", error=kind))
        finally:
            ended("" if turn is None else turn.outcome)

    async def _step(self, answer: _Answer) -> Step:
        """Return the step that a message leads to. Raises the errors of `session.state`."""
        text = answer.asked.text
        if self.slots is None or answer.asked.is_stored:
            return Step(Kind.FREE, text or "")
        state = await answer.session.state()
        if state.degraded and self._needs_memory:
            raise StoreUnavailable("only Redis knows which param the conversation waits for", answer.session.id)
        if text is None and state.waiting_for_param in self.slots.sensitive:
            raise InvalidMessage("the conversation waits for a param: its value is a message with a text alone")
        return Step(Kind.FREE, "") if text is None else self.slots.step(state, text)

    async def _enter(self, stack: contextlib.AsyncExitStack, answer: _Answer, step: Step) -> tuple[Turn, bool]:
        """Begin the turn. Return it, and True if as many replicas have the message as they should.

        If they do not confirm the message, the chat answers all the same. While Redis is down, no replica can; if the
        fallback is on, this process accepts the message without.
        """
        try:
            return await stack.enter_async_context(self._turn(answer, step)), True
        except Unconfirmed:
            pass
        except StoreUnavailable:
            if not (await answer.session.state()).degraded:
                raise
        return await stack.enter_async_context(self._turn(answer, step, confirm=0)), False

    def _turn(self, answer: _Answer, step: Step, **options: Any) -> Turn:
        asked, metadata = answer.asked, {"turn": answer.asked.turn_id}
        recall = self.recall if asked.recall is None else asked.recall
        payloads = asked.payloads if asked.text in (None, step.text) else [{"role": "user", "content": step.text}]
        turn = answer.session.turn(
            *(Message.restored(payload, {"metadata": metadata}, 0, 0, 0, "") for payload in payloads),
            id=asked.turn_id,
            when_busy=asked.when_busy,
            recall=recall or None,
            recall_scope=asked.recall_scope if recall else "session",
            project=asked.project,
            expect=asked.expect,
            **step.changes,
            **options,
        )
        turn.metadata = metadata
        return turn

    @property
    def _needs_memory(self) -> bool:
        """True if only the stored state can tell whether a message is a sensitive value."""
        return self.slots is not None and bool(self.slots.sensitive)

    async def _write_answer(self, turn: Turn, answer: _Answer, step: Step) -> None:
        """Write notices, the numbers of what was recalled, and the answer. Raises ModelFailed, after a notice."""
        context, session, has_text = turn.context, answer.session, False
        calls: list[dict[str, Any]] = []
        if context.degraded:
            await turn.write(_notice("degraded"))
        if await _has_failed_summaries(session, context):
            await turn.write(_notice("summary_failed"))
        if context.recalled or context.recalled.unsearched_count:
            numbers = recalled_numbers(context.recalled, session.id)
            turn.metadata = {**turn.metadata, RECALLED: kept_numbers(numbers, session.id)}
            await turn.write({"type": "data", "name": RECALLED, "data": numbers})
        try:
            async with contextlib.aclosing(self._pieces(context, step, answer.asked.tools)) as pieces:
                async for piece in pieces:
                    has_text = True
                    if isinstance(piece, str):
                        await turn.write(piece)
                    else:
                        await turn.write(_call_event(piece))
                        calls += () if piece.whole is None else (piece.whole,)
            turn.tool_calls = calls
        except ModelFailed as failed:
            await turn.write(_explain(failed, has_text=has_text, is_stored=True))
            raise

    async def _pieces(self, context: Context | None, step: Step, tools: Tools) -> AsyncGenerator[str | ToolDelta, None]:
        """Yield the answer piece by piece. Raises ModelFailed."""
        if step.say is not None:
            yield step.say
        elif self.model is None:
            for piece in offline.split_words(offline.answer(context, step.text, self.hidden_params)):
                yield piece
                await asyncio.sleep(0)
        else:
            prompt = make_prompt(
                self.instruction, context, step.text, self.hidden_params, alternate=self.alternate, tools=bool(tools)
            )
            async with contextlib.aclosing(ask_model(self.model, prompt, self.max_tokens, tools)) as answer:
                async for each in answer:
                    yield each


async def _primed(events: Events) -> Events:
    """Return these events, of which the first is there: they are all told, even if the turn ends meanwhile."""
    first = await anext(events)

    async def tell() -> Events:
        yield first
        async for each in events:
            yield each

    return tell()


async def _has_failed_summaries(session: Session, context: Context) -> bool:
    """True if the session's summaries have failed for good. Asks Redis only if the window is long."""
    if context.window_count < 3 * context.recent_limit:
        return False
    with contextlib.suppress(RedismemError):  # the message is stored; the turn can do without the check
        return (await session.info()).queued == "dead"
    return False


def _call_event(delta: ToolDelta) -> Event:
    named = {"name": delta.name} if delta.name else {}
    told = {"delta": delta.delta} if delta.delta else {}
    return {"type": "tool_call", "id": delta.id, **named, **told, **({} if delta.whole is None else {"done": True})}


def _notice(code: str, text: str = "") -> Event:
    return {"type": "notice", "code": code, "text": text or _NOTICES[code]}


def _explain(failed: ModelFailed, *, has_text: bool, is_stored: bool) -> Event:
    failure = "The model broke off" if has_text else "The model did not answer"
    why = f": {failed.text}" if failed.text else ""
    stored = " Your message is stored." if is_stored else ""
    return _notice("model_failed", f"{failure}{why}.{stored} You can send it again, or go on.")


def _end(outcome: str, reason: str) -> Event:
    return {"type": "end", "outcome": outcome, "reason": reason, "seq": None, "usage": None}
