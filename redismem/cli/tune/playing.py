"""Play conversations with one choice of settings, and measure them. Prints nothing.

Each request appends its messages and reads the context, as a chat does; the reply is appended, and a due summary is
written at once. Then everything is read back and compared with the file, and more turns of the same sessions are
made in an open loop. Nothing is left.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from redismem.cli.bench.offering import Open, open_loop
from redismem.cli.room import json_bytes
from redismem.cli.terminal import text_of_message
from redismem.cli.transcripts import Question, Transcript, exchanges, questions_of
from redismem.cli.tune.choices import Choice
from redismem.cli.tune.figures import Figures
from redismem.cli.tune.words import TOKEN_BYTES, LaterWords, all_words, content_words, equal_bytes, json_of
from redismem.context.results import Summary
from redismem.errors import RedismemError, StoreUnavailable
from redismem.inspection.check import check_session
from redismem.inspection.dictionaries import add_dictionary, expire_dictionaries
from redismem.inspection.erasing import erase_namespace
from redismem.inspection.loading import warm_up
from redismem.inspection.servers import server_cpu_s
from redismem.inspection.weight import stored_bytes
from redismem.memory.memory import Memory
from redismem.messages.message import Message
from redismem.models import Draft, Summarizer
from redismem.originals.dictionaries import Dictionary
from redismem.session.session import Session
from redismem.store.dictionaries import load_versions
from redismem.text.word_counts import Sketch
from redismem.workers.outcomes import SummaryOutcome
from redismem.workers.strategies import Strategy, Summarize, Trim, from_settings
from redismem.workers.summaries import Worker

Said = dict[str, Any] | Message

_FIRST_VERSION = 1
"""The first dictionary of a namespace."""
_SUMMARISED = (SummaryOutcome.NONE, SummaryOutcome.NOOP, SummaryOutcome.NOTDUE)
"""The outcomes of a session that is not due."""


class Failed(Exception):
    """A conversation cannot be played. `line` is its number."""

    def __init__(self, line: int, why: object) -> None:
        super().__init__(str(why))
        self.line = line


@dataclass(frozen=True, slots=True)
class Conversation:
    """A transcript, with what does not depend on the settings."""

    transcript: Transcript
    said: Sequence[Said]
    """The messages as they are appended."""
    questions: Sequence[Question]
    later: LaterWords
    requests: int
    """The number of requests to the model."""
    text_bytes: int
    """The length of the messages as JSON."""


class CountedSummaries(Summarize):
    """A strategy that counts its summaries and their tokens."""

    def __init__(self, inner: Summarize, figures: Figures) -> None:
        self._inner, self._figures, self.provider = inner, figures, inner.provider

    def keeps_one_summary(self, summaries: Sequence[Summary]) -> bool:
        return self._inner.keeps_one_summary(summaries)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def draft(
        self, messages: Sequence[Message], previous: str | None, sketch: Sketch | None, others_tokens: int
    ) -> Draft:
        draft = await self._inner.draft(messages, previous, sketch, others_tokens)
        given = sum(len(json_of(message.to_openai())) for message in messages) + len(previous or "")
        self._figures.summaries += 1
        self._figures.summary_input += draft.input_tokens or given // TOKEN_BYTES
        self._figures.summary_output += draft.output_tokens or len(draft.text.encode()) // TOKEN_BYTES
        return draft


class Play:
    """One play on a namespace of its own, which is removed at the end."""

    def __init__(
        self,
        memory: Memory,
        choice: Choice,
        conversations: Sequence[Conversation],
        beside: Summarizer,
        sent: Callable[[], int],
    ) -> None:
        """Prepare a play.

        `beside` writes the summaries of the open loop and of heats: it calls no model. `sent` returns the number of
        calls to Redis so far.
        """
        self.figures = Figures()
        self._sent = sent
        self._memory, self._choice, self._conversations = memory, choice, conversations
        self._settings, self._beside = memory.settings, beside
        self._ids: list[str] = []

    async def run(
        self, rate: float, seconds: float, dictionary: Dictionary | None, advance: Callable[[int], None]
    ) -> Figures:
        """Play all conversations. `advance` is told the number of those played. Erases the namespace at the end.

        Raises:
            Failed: a conversation was refused.
            StoreUnavailable, NotAllowed: Redis fails.
        """
        figures, store, strategy = self.figures, self._memory.store, from_settings(self._settings)
        counted = CountedSummaries(strategy, figures) if isinstance(strategy, Summarize) else strategy
        try:
            await self._play_all(None if counted is None else Worker(store, counted), dictionary, advance)
            figures.stored_bytes = await stored_bytes(store, self._ids)
            for session_id, conversation in zip(self._ids, self._conversations, strict=True):
                await self._for_line(conversation, self._compare(session_id, conversation))
                await self._for_line(conversation, self._ask(session_id, conversation))
            if seconds:
                figures.opened = await self._open_loop(rate, seconds)
            return figures
        finally:
            if isinstance(strategy, Summarize):
                await strategy.aclose()
            await erase_namespace(store, self._ids)

    async def heat(self, dictionary: Dictionary | None, advance: Callable[[int], None]) -> Figures:
        """Play all conversations for their CPU alone: no model is called, nothing is compared. Raises as `run`."""
        try:
            await self._play_all(self._worker_beside(), dictionary, advance)
            return self.figures
        finally:
            await erase_namespace(self._memory.store, self._ids)

    async def _play_all(
        self, worker: Worker | None, dictionary: Dictionary | None, advance: Callable[[int], None]
    ) -> None:
        figures, store = self.figures, self._memory.store
        await warm_up(store)
        if dictionary is not None and self._settings.train_dictionaries:
            await expire_dictionaries(store, round(self._settings.idle_timeout_s))
            await add_dictionary(store, dictionary)
        begun_s, before_s = time.monotonic(), await server_cpu_s(store)
        for number, conversation in enumerate(self._conversations):
            await self._for_line(conversation, self._play(conversation, worker))
            advance(number + 1)
        after_s = await server_cpu_s(store)
        if before_s is not None and after_s is not None:
            figures.server_s = after_s - before_s
        figures.seconds = time.monotonic() - begun_s

    def _worker_beside(self) -> Worker | None:
        """Return a worker whose summaries call no model."""
        settings = self._settings
        if settings.strategy == "none":
            return None
        strategy: Strategy = Trim()
        if settings.strategy == "summarize":
            strategy = Summarize(self._beside, settings.summary_tokens, settings.summary_tokens_total)
        return Worker(self._memory.store, strategy)

    async def train(self) -> Dictionary | None:
        """Play the conversations without measuring, and return the dictionary that a worker trains on them, if any."""
        worker = Worker(self._memory.store, Trim())
        try:
            await expire_dictionaries(self._memory.store, round(self._settings.idle_timeout_s))
            for conversation in self._conversations:
                session = self._session(conversation)
                limit = self._settings.max_batch_count
                for at in range(0, len(conversation.said), limit):
                    await self._for_line(conversation, session.append(*conversation.said[at : at + limit]))
                await worker.attend(session.id)
            await worker.drain()  # this trains
            await load_versions(self._memory.store, [_FIRST_VERSION])
            return self._memory.store.dictionaries.get(_FIRST_VERSION)
        finally:
            await erase_namespace(self._memory.store, self._ids)

    async def _for_line(self, conversation: Conversation, work: Any) -> None:
        try:
            await work
        except StoreUnavailable:
            raise
        except RedismemError as refused:
            raise Failed(conversation.transcript.line, refused) from None

    def _session(self, conversation: Conversation) -> Session:
        """Return a new session. Its id says nothing of the conversation."""
        session_id = f"line-{conversation.transcript.line}"
        self._ids.append(session_id)
        return self._memory.session(session_id, owner=conversation.transcript.owner)

    async def _play(self, conversation: Conversation, worker: Worker | None) -> None:
        session, figures, said = self._session(conversation), self.figures, conversation.said
        before = b""
        for first, reply, end in exchanges(conversation.transcript.messages, self._settings.max_batch_count):
            window_count = 0
            started_s, sent = time.process_time(), self._sent()
            if reply > first:
                context = await session.append_and_read(*said[first:reply], recall=self._choice.recall or None)
                view = context.to_openai()
                window_count = context.window_count
                if context.last_seq != reply:
                    self._differs(conversation, f"a request ended at message {context.last_seq}, not {reply}")
            if end > reply:
                window_count = (await session.append(*said[reply:end])).window_count
            if reply > first:
                figures.client_us.append((time.process_time() - started_s) * 1e6)
                figures.trips += self._sent() - sent
                parts = [json_of(message) for message in view]
                request = f"[{', '.join(parts)}]".encode("utf-8", "surrogatepass")
                figures.tokens.append(len(request) // TOKEN_BYTES)
                figures.equal.append(equal_bytes(before, request) // TOKEN_BYTES)
                self._add_words(conversation.later.of_reply(first, reply, end), parts)
                before = request
            outcome = await self._summarise(session.id, worker, window_count)
            if outcome not in _SUMMARISED:
                of_model = "" if self._settings.model_provider == "extractive" else " by your model"
                raise Failed(conversation.transcript.line, f"no summary was written{of_model}: {outcome}")
        figures.sessions += 1
        figures.messages += len(said)

    def _add_words(self, later: dict[str, float], parts: Sequence[str]) -> None:
        held = all_words(parts)
        self.figures.later += sum(later.values())
        self.figures.later_held += sum(weight for word, weight in later.items() if word in held)

    async def _summarise(self, session_id: str, worker: Worker | None, window_count: int) -> SummaryOutcome:
        """Summarise a session until it is not due, and return the last outcome."""
        settings = self._settings
        if worker is None or not (window_count > settings.threshold or settings.threshold_tokens):
            return SummaryOutcome.NONE
        while (outcome := await worker.attend(session_id)) is SummaryOutcome.OK:
            pass
        return outcome

    async def _compare(self, session_id: str, conversation: Conversation) -> None:
        """Read a session back and compare each message with the file, then check the session's invariants."""
        session = self._memory.session(session_id)
        stored = await session.messages(include_originals=True)
        wanted = conversation.said
        for message in stored:
            sent = wanted[message.seq - 1] if 0 < message.seq <= len(wanted) else None
            payload = sent.to_openai() if isinstance(sent, Message) else sent
            if json.dumps(message.to_openai()) != json.dumps(payload):
                self._differs(conversation, f"message {message.seq} differs from the file")
        is_whole = self._settings.keep_originals or self._settings.strategy == "none"
        if is_whole and len(stored) != len(wanted):
            self._differs(conversation, f"{len(stored)} messages came back, not {len(wanted)}")
        for violation in await check_session(self._memory.store, session_id):
            self._differs(conversation, f"{violation.invariant}: {violation.text}")

    def _differs(self, conversation: Conversation, text: str) -> None:
        self.figures.differences.append((conversation.transcript.line, text))

    async def _ask(self, session_id: str, conversation: Conversation) -> None:
        """Ask each question in a turn, and take the turn back."""
        session = self._memory.session(session_id)
        for question in conversation.questions:
            asked = {"role": "user", "content": question.text}
            context = await session.append_and_read(asked, recall=self._choice.recall or None)
            await session.pop()
            words = content_words(question.answer)
            held = all_words(json_of(message) for message in context.to_openai())
            self.figures.answers.append(len(words & held) / len(words) if words else 1.0)

    async def _open_loop(self, rate: float, seconds: float) -> Open:
        """Go on with the sessions: their turns come at random moments. Summaries are written without a model."""
        limit = self._settings.max_batch_count
        turns = [list(exchanges(each.transcript.messages, limit)) for each in self._conversations]
        worker = self._worker_beside()
        tasks = set[asyncio.Task[SummaryOutcome]]()

        async def turn(number: int) -> None:
            at, count = number % len(turns), number // len(turns)
            first, reply, end = turns[at][count % len(turns[at])]
            session, said = self._memory.session(self._ids[at]), self._conversations[at].said
            window_count = 0
            if reply > first:
                context = await session.append_and_read(*said[first:reply], recall=self._choice.recall or None)
                context.to_openai()
                window_count = context.window_count
            if end > reply:
                window_count = (await session.append(*said[reply:end])).window_count
            task = asyncio.create_task(self._summarise(session.id, worker, window_count))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        opened = await open_loop(turn, rate, seconds)
        await asyncio.gather(*tasks)
        return opened


def prepare(transcript: Transcript) -> Conversation:
    """Return the conversation to play. A message's `time_ms` becomes its timestamp.

    Raises:
        BadLine: if its questions have another form.
    """
    questions = questions_of(transcript)
    texts, pinned, said = [], [], list[Said]()
    for payload in transcript.messages:
        time_ms = payload.pop("time_ms", None)
        texts.append(text_of_message(payload))
        pinned.append(payload.get("role") in ("system", "developer"))
        if isinstance(time_ms, int) and not payload.keys() & {"timestamp", "metadata", "id"}:
            said.append(Message(timestamp=datetime.fromtimestamp(time_ms / 1000, UTC), **payload))
        else:
            said.append(payload)
    requests = sum(reply > first for first, reply, _ in exchanges(transcript.messages, len(said)))
    text_bytes = sum(map(json_bytes, transcript.messages))
    return Conversation(transcript, said, questions, LaterWords(texts, pinned), requests, text_bytes)
