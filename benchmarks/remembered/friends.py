"""Two friends who chat over months: some facts are asked for much later, and far more text never is.

Everything comes from a seed, so a conversation is equal in every run. Each language has a file of texts.
"""

from __future__ import annotations

import random
import re
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.remembered.conversation import Conversation, Question, Turn

FOLDER = Path(__file__).parent
LANGUAGES = ("en", "de", "es", "ru", "zh", "ar")
_SLOT = re.compile(r"\{(\w+)\}")
# How often the same thing is told by the same friend, each time with other values.
_TOLD_COUNT = 2
_FACTS_SHARE = 0.32
_CHANGED_SHARE = 0.9
_AGAIN_SHARE = 0.25
_MONTHS = tuple(f"{datetime(2023, month, 1, tzinfo=UTC):%B}" for month in range(1, 13))


class Friends:
    """A conversation under construction."""

    def __init__(self, language: str, count: int, seed: int) -> None:
        self._texts: dict[str, Any] = tomllib.loads((FOLDER / f"{language}.toml").read_text(encoding="utf-8"))
        self._random = random.Random(f"{language} {count} {seed}")
        self._count = count
        self.language = language
        self._names: list[str] = self._random.choice(self._texts["names"])
        self._pools = {name: self._shuffled(values) for name, values in self._texts["pools"].items()}
        # What may change has one value at a time, and is told once.
        facts = [fact for fact in self._texts["facts"] for _ in range(1 if "change" in fact else _TOLD_COUNT)]
        self._facts = self._shuffled([(fact, who) for fact in facts for who in (0, 1)])
        # A few words come again and again, most hardly ever, as in any text.
        self._words = {kind: self._shuffled(words.split()) for kind, words in self._texts.get("words", {}).items()}
        self._now = datetime(2023, 1, 8, 18, 30, tzinfo=UTC)
        self._changes: list[tuple[int, str, int, Question]] = []
        self.turns: list[Turn] = []
        self.questions: list[Question] = []

    def _shuffled(self, values: list[Any]) -> list[Any]:
        return self._random.sample(values, len(values))

    def conversation(self) -> Conversation:
        while len(self.turns) < self._count:
            self._session(min(self._random.randrange(14, 31), self._count - len(self.turns)))
            self._now += timedelta(days=self._random.randrange(2, 19), minutes=self._random.randrange(600))
        self.questions += [question for _, _, _, question in self._changes]
        return Conversation(f"friends, {self.language}", self.language, self.turns, self.questions)

    @property
    def _next_seq(self) -> int:
        return len(self.turns) + 1

    def _session(self, count: int) -> None:
        who = self._random.randrange(2)
        self._say(who, [self._line("open", who), *self._idle(who, 1)])
        for _ in range(count - 2):
            who = 1 - who
            told = self._choose_lines(who)
            before = [self._line("react", 1 - who)] if self._random.random() < 0.6 else []
            after = [self._line("ask", who)] if self._random.random() < 0.4 else []
            self._say(who, [*before, *told, *self._idle(who, self._random.randrange(1 if told else 2, 4)), *after])
        if count > 1:
            self._say(1 - who, [*self._idle(who, 1), self._line("close", 1 - who)])

    def _say(self, who: int, sentences: list[str]) -> None:
        self._now += timedelta(seconds=self._random.randrange(20, 180))
        text = ("" if self.language == "zh" else " ").join(sentences)
        role = ("user", "assistant")[who]
        payload = {"role": role, "name": self._names[who], "content": text}
        self.turns.append(Turn(payload, int(self._now.timestamp() * 1000)))

    def _choose_lines(self, who: int) -> list[str]:
        due = next((change for change in self._changes if change[0] <= len(self.turns) and change[2] == who), None)
        if due is not None:
            self._changes.remove(due)
            self.questions.append(replace(due[3], gold=(self._next_seq,), kind="changed fact"))
            return [due[1]]
        if self._random.random() > _FACTS_SHARE:
            return []
        place = next((at for at, (_, teller) in enumerate(self._facts) if teller == who), None)
        return [] if place is None else self._fact(who, self._facts.pop(place)[0])

    def _fact(self, who: int, fact: dict[str, Any]) -> list[str]:
        said = self._random.choice(fact["say"])
        needed = dict.fromkeys(_SLOT.findall(f"{said} {fact['answer']}"))
        changes = "change" in fact and self._random.random() < _CHANGED_SHARE
        wanted = [*needed, *(dict.fromkeys(_SLOT.findall(fact["change"])) if changes else ())]
        values = self._values(who, wanted)
        if values is None:
            return []
        asked, answer = fact["ask"].format_map(values), fact["answer"].format_map(values)
        if changes:
            # The new value of each slot that has one; the others stay as they were.
            newer = values | {name[:-1]: value for name, value in values.items() if name[-1] == "2"}
            later = len(self.turns) + self._random.randrange(20, 200)
            question = Question(asked, fact["answer"].format_map(newer), answer)
            if later < self._count - 30:
                self._changes.append((later, fact["change"].format_map(values), who, question))
                return [said.format_map(values)]
        self.questions.append(Question(asked, answer, gold=(self._next_seq,)))
        return [said.format_map(values)]

    def _values(self, who: int, wanted: list[str]) -> dict[str, str] | None:
        """Return a value for each slot, unique in this conversation; `None` if too few values are left."""
        values = {"a": self._names[who], "b": self._names[1 - who]}
        values["date"] = f"{self._now.day} {_MONTHS[self._now.month - 1]} {self._now.year}"
        values["month"] = values["date"].partition(" ")[2]
        for name in wanted:
            pool = self._pools.get(name.rstrip("2"), [])
            if name in values:
                continue
            if not pool:
                return None
            values[name] = pool.pop() if name.rstrip("2") not in ("weekday", "number") else self._random.choice(pool)
        return values

    def _line(self, kind: str, who: int) -> str:
        line: str = self._random.choice(self._texts["chat"][kind])
        return line.format(a=self._names[who], b=self._names[1 - who])

    def _idle(self, who: int, count: int) -> Iterator[str]:
        chat = self._texts["chat"]
        for _ in range(count):
            if "idle" not in chat or self._random.random() < 0.25:
                yield self._line("more", who)
                continue
            pattern = self._random.choice(chat["idle"])
            yield pattern.format_map({name: self._word(name.rstrip("2")) for name in _SLOT.findall(pattern)})

    def _word(self, kind: str) -> str:
        words = self._words[kind]
        return str(words[int(len(words) * self._random.random() ** 2)])


def friends(language: str, count: int, seed: int = 0) -> Conversation:
    """Generate a conversation of this many messages."""
    return Friends(language, count, seed).conversation()
