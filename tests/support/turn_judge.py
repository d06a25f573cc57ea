"""The judge of the campaign of turns: compares what is stored with what writers and listeners know."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from redismem import Memory, Message, Session, TurnInfo
from redismem.inspection.check import check
from support.turn_processes import SESSIONS, read_lines

Line = dict[str, Any]


def numbers_of(text: str, generation: str) -> list[int]:
    """Return the numbers of the words of a turn; -1 for a word of another one."""
    words = [word.rpartition(":") for word in text.split()]
    return [int(number) if said == generation and number.isdigit() else -1 for said, _, number in words]


class Copy:
    """The events of one turn as one listener was told them."""

    def __init__(self, generation: str) -> None:
        self.generation = generation
        self.faults: list[str] = []
        self.deltas_count = self.resets_count = 0
        self.end: Line | None = None
        self._restart()

    def _restart(self) -> None:
        self.text, self.before = "", ""
        self._offset = -1
        self._next: int | None = None
        self.message: Line | None = None

    def take(self, event_id: str, event: Line) -> None:
        """Take the next event that the listener was told."""
        if self.end is not None:
            self.faults.append("deltas doubled: an event after the end")
        if event["type"] in ("reset", "restart"):
            self.resets_count += event["type"] == "reset"
            self._restart()
            return
        if event_id:
            offset = int(event_id.rpartition(".")[2])
            if offset <= self._offset:
                self.faults.append(f"deltas out of order: event {offset} after {self._offset}")
            self._offset = offset
        match event["type"]:
            case "text":
                self._take_text(event["delta"], is_stored=not event_id)
            case "message":
                self.before, self.text, self.message = self.text, "", event
            case "end":
                self.end = event

    def _take_text(self, delta: str, *, is_stored: bool) -> None:
        for number in numbers_of(delta, self.generation):
            expected = number if self._next is None and is_stored else self._next or 0
            if number != expected:
                how = "deltas lost" if number > expected else "deltas doubled"
                self.faults.append(f"{how}: word {number} where {expected} should be")
            self._next = number + 1
            self.deltas_count += 1
        self.text += delta

    @property
    def reply(self) -> str:
        """The reply that the listener was told."""
        assert self.end is not None
        is_in_log = self.message is not None and self.message["last_seq"] == self.end["seq"]
        return self.before if is_in_log else self.text


class Verdict:
    """The result of a campaign."""

    def __init__(self, folder: Path) -> None:
        self.violations: list[str] = []
        self.counts: Counter[str] = Counter()
        self.writers = [line for path in sorted(folder.glob("writer-*")) for _, line in read_lines(path)]
        self.begun = {line["generation"]: line for line in self.writers if line["kind"] == "begun"}
        self.counts.update(line["text"] for line in self.writers if line["kind"] == "refused")
        self.copies: dict[tuple[int, str], Copy] = {}
        for path in sorted(folder.glob("listener-*"), key=lambda path: int(path.suffix[1:])):
            number = int(path.stem.rpartition("-")[2])
            for _, line in read_lines(path):
                self._take(number, line)

    def _take(self, number: int, line: Line) -> None:
        generation = line["generation"]
        if line["kind"] == "unknown":
            self.blame("unknown", f"listener {number} finds no turn {line['id']}")
        elif line["kind"] == "other":
            self.copies.pop((number, generation), None)
        else:
            key = number, generation
            copy = self.copies[key] = self.copies.get(key) or Copy(generation)
            copy.take(line["id"], line["event"])

    def blame(self, word: str, text: str) -> None:
        self.counts[word] += 1
        self.violations.append(f"{word}: {text}")

    def check_copies(self, killed_count: int) -> None:
        """Check that each listener was told each word once and in order, until the end."""
        newest: dict[str, int] = {}
        for line in self.begun.values():
            fence = int(line["generation"].partition("-")[0])
            newest[line["session"]] = max(newest.get(line["session"], 0), fence)
        for (number, generation), copy in self.copies.items():
            self.counts["deliveries"] += copy.deltas_count
            self.counts["resets"] += copy.resets_count
            for fault in copy.faults:
                self.blame(fault.partition(":")[0], f"listener {number}, turn {generation}: {fault}")
            if copy.end is None:
                self.blame("lost", f"listener {number} was never told the end of {generation}")
            was_replaced = int(generation.partition("-")[0]) < newest[self.begun[generation]["session"]]
            if copy.resets_count and not killed_count and not was_replaced:
                self.blame("reset", f"listener {number}, turn {generation}: nobody had killed Redis")

    async def check_store(self, memory: Memory) -> None:
        """Check the sessions against the ledgers, and the store as a whole."""
        for session_id in SESSIONS:
            session = memory.session(session_id)
            messages = await session.messages(include_originals=True)
            await self._check_session(session, messages)
        for violation in [each async for each in check(memory.store)]:
            self.blame("check", str(violation))

    async def _check_session(self, session: Session, messages: list[Message]) -> None:
        if [message.seq for message in messages] != list(range(1, len(messages) + 1)):
            self.blame("lost", f"{session.id}: its seqs have gaps")
        ids = Counter(str(message.content) for message in messages if message.role == "user")
        for turn_id, count in ids.items():
            if count > 1:
                self.blame("doubled", f"{count} questions of {turn_id}")
        known = {turn_id: await session.turn_of(turn_id) for turn_id in ids}
        self._check_replies(session, messages, known)
        self._check_appended(session, messages)
        own = [line for line in self.writers if line.get("session") == session.id]
        for line in own:
            if line["kind"] == "begun" and line["id"] not in ids:
                self.blame("lost", f"the question of {line['id']}")
            if line["kind"] == "ended":
                self._check_ended(line, messages, known.get(line["id"]))
        for (number, generation), copy in self.copies.items():
            if self.begun[generation]["session"] == session.id and copy.end is not None:
                self._check_told(number, copy, messages, known.get(self.begun[generation]["id"]))

    def _check_replies(self, session: Session, messages: list[Message], known: dict[str, TurnInfo | None]) -> None:
        """Check that each reply is that of one turn, and that nothing runs any more."""
        replies = [message for message in messages if message.role == "assistant"]
        seqs = {m.seq for m in replies if not str(m.content).startswith("tool ")}
        found: Counter[int] = Counter()
        for turn_id, info in known.items():
            if info is None or info.how != "ended":
                self.blame("running", f"{turn_id} is {info}")
            else:
                self.counts[f"ended {info.outcome}"] += 1
                found[info.reply_seq] += 1
        del found[0]
        if seqs != set(found) or any(count > 1 for count in found.values()):
            self.blame("doubled", f"{session.id}: replies {seqs ^ set(found)} are of no turn, or of two")
        for message in replies:
            if message.seq in seqs:
                text = str(message.content)
                numbers = numbers_of(text, text.partition(":")[0])
                if numbers != list(range(numbers[0], numbers[0] + len(numbers))):
                    self.blame("torn", f"{session.id}: reply {message.seq}")

    def _check_appended(self, session: Session, messages: list[Message]) -> None:
        stored: defaultdict[str, list[int]] = defaultdict(list)
        for message in messages:
            if str(message.content).startswith("tool "):
                stored[str(message.content)].append(message.seq or 0)
        for text, seqs in stored.items():
            if len(seqs) != 2 or seqs[1] != seqs[0] + 1:
                self.blame("doubled" if len(seqs) > 2 else "torn", f"{text} at {seqs}")
        for line in self.writers:
            if line["kind"] == "appended" and line["session"] == session.id:
                self.counts["appends"] += 1
                if line["text"] not in stored:
                    self.blame("lost", f"appended: {line['text']}")

    def _check_ended(self, line: Line, messages: list[Message], info: TurnInfo | None) -> None:
        """Check that what the writer knows of its turn's end is what is stored."""
        if info is None or line["outcome"] in ("", "lost") or (line["outcome"] == "failed" and not line["reply_seq"]):
            return  # it may have ended otherwise, or have begun again
        seq = line["reply_seq"]
        if (info.outcome, info.reply_seq) != (line["outcome"], seq):
            self.blame("torn", f"{line['id']} is {line['outcome']} at {seq} for its writer, and {info}")
        stored = messages[seq - 1] if 0 < seq <= len(messages) else None
        if ("" if stored is None else stored.content) != line["text"]:
            self.blame("lost", f"the reply of {line['id']} is not what its writer said")
        if stored is not None and ("incomplete" in (stored.metadata or {})) != (line["outcome"] != "done"):
            self.blame("torn", f"{line['id']}: metadata of its reply")

    def _check_told(self, number: int, copy: Copy, messages: list[Message], info: TurnInfo | None) -> None:
        """Check that a listener was told what is stored."""
        assert copy.end is not None
        seq = copy.end["seq"]
        stored = str(messages[seq - 1].content) if seq and seq <= len(messages) else ""
        if copy.reply != stored:
            text = f"{len(copy.reply)} characters, stored are {len(stored)}; {copy.end} {copy.resets_count} resets"
            self.blame("untrue", f"listener {number}, turn {copy.generation}: told {text}")
        if info is not None and seq and (info.outcome, info.reply_seq) != (copy.end["outcome"], seq):
            self.blame("untrue", f"listener {number}, turn {copy.generation}: told {copy.end}, known is {info}")
