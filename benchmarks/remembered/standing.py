"""Conversations in which a person tells an assistant rules that hold from then on, and later asks for what they rule.

A rule is told once, within a message about its topic, and the topic returns in many talks: the assistant answers at
length, and both tell names and numbers. The request that a rule concerns shares a word or two with it. Some rules are
replaced by a newer one.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import replace

from benchmarks.remembered.conversation import Conversation, Question
from benchmarks.remembered.dated import MONTHS, Dated
from benchmarks.remembered.friends import FOLDER

KIND, CHANGED_KIND = "standing", "standing, changed"
_RULES_SHARE, _CHANGED_SHARE, _TOPIC_SHARE = 0.3, 0.35, 0.6
_SAID_SENTENCES, _ANSWERED_SENTENCES = (2, 6), (6, 16)
_SYLLABLES = "ba da fa ka la ma na pa ra sa ta va bel den fin gor hul jan kor lin mor nes pol rin sol tur vik zan"
_STREETS = ("Street", "Road", "Lane", "Square")
_NEVER = 1 << 30  # so that only this module tells the newer rule


class Standing(Dated):
    """A conversation with an assistant under construction, with rules."""

    def __init__(self, language: str, count: int, seed: int) -> None:
        super().__init__(language, count, seed, with_assistant=True)
        self._sentences = tomllib.loads((FOLDER / "standing.toml").read_text(encoding="utf-8"))[language]
        self._rules = self._shuffled(
            [(each["topic"], each["rule"], each["values"], each["ask"]) for each in self._sentences["rules"]]
        )
        self._topics = [topic for topic, *_ in self._rules]
        self._topic = self._topics[0]

    def _session(self, count: int) -> None:
        self._topic = self._random.choice(self._topics)
        super()._session(count)

    def _choose_lines(self, who: int) -> list[str]:
        if who == 1:
            return list(self._talk("answered", _ANSWERED_SENTENCES))
        told = self._rule() if self._random.random() < _RULES_SHARE else super()._choose_lines(who)
        before, after = list(self._talk("said", _SAID_SENTENCES)), list(self._talk("said", (0, 3)))
        return [*before, *told, *after]

    def _rule(self) -> list[str]:
        """Tell the next rule in the first half, so that it is asked for long after, or replace one in the second."""
        if 2 * len(self.turns) < self._count:
            if not self._rules:
                return []
            topic, rule, (value, newer), request = self._rules.pop()
            self._topic, said, later = topic, rule.format(value=value), rule.format(value=newer)
            question = Question(request, said, gold=(self._next_seq,), kind=KIND)
            if self._random.random() < _CHANGED_SHARE:
                self._changes.append((_NEVER, later, 0, replace(question, answer=later, older=said)))
            else:
                self.questions.append(question)
            return [said]
        due = next((change for change in self._changes if change[3].kind == KIND), None)
        if due is None or 5 * len(self.turns) > 4 * self._count:
            return []
        self._changes.remove(due)
        self.questions.append(replace(due[3], gold=(self._next_seq,), kind=CHANGED_KIND))
        return [due[1]]

    def _talk(self, kind: str, counts: tuple[int, int]) -> Iterator[str]:
        choose, name = self._random.choice, self._name
        for _ in range(self._random.randrange(*counts)):
            if self._random.random() > _TOPIC_SHARE:
                yield from self._idle(0, 1)
                continue
            values = {"topic": self._topic, "month": choose(MONTHS[self.language].split())}
            values |= {"person": name(2), "city": name(3), "street": f"{name(2)} {choose(_STREETS)}"}
            values |= {"number": str(self._random.randrange(2, 99)), "money": f"${10 * self._random.randrange(2, 400)}"}
            yield choose(self._sentences[kind]).format_map(values)

    def _name(self, syllables: int) -> str:
        """Return a name; most occur once or twice in a conversation."""
        return "".join(self._random.choice(_SYLLABLES.split()) for _ in range(syllables)).capitalize()


def standing(language: str, count: int, seed: int = 0) -> Conversation:
    """Generate a conversation of this many messages, with rules. Its questions are the requests that they rule."""
    told = Standing(language, count, seed).conversation()
    questions = [question for question in told.questions if question.kind in (KIND, CHANGED_KIND)]
    return Conversation(f"standing, {language}, {count}", language, told.turns, questions)
