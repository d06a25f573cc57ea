"""Conversations whose answers need the time: two friends, or a person with an assistant that answers at length.

Everything comes from a seed. Events are told with a relative day ("yesterday"), and asked for by their date, or by the
month in which they were told.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any

from benchmarks.remembered.conversation import Conversation, Question
from benchmarks.remembered.friends import Friends

MONTHS = {
    "en": "January February March April May June July August September October November December",
    "de": "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
    "es": "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
}
# A relative day, and its distance in days.
_AGO = {
    "en": (("Yesterday", 1), ("Two days ago", 2), ("The day before yesterday", 2)),
    "de": (("Gestern", 1), ("Vor zwei Tagen", 2), ("Vorgestern", 2)),
    "es": (("Ayer", 1), ("Hace dos días", 2), ("Anteayer", 2)),
}
# What was done, the pool of its slot, the question for its date, and the question for it by a month.
_EVENTS = {
    "en": (
        ("{ago} I finally went to {slot}.", "trip", "When did {a} go to {slot}?", "Where did {a} go in {month}?"),
        ("{ago} I cooked {slot} for everybody.", "dish", "When did {a} cook {slot}?", "What did {a} cook in {month}?"),
        ("{ago} {slot} came by for a coffee.", "person", "When did {slot} visit?", "Which visitor came in {month}?"),
    ),
    "de": (
        ("{ago} habe ich {slot} gekocht.", "dish", "Wann gab es {slot}?", "Was wurde im {month} {year} gekocht?"),
        ("{ago} war {slot} zum Kaffee hier.", "person", "Wann war {slot} da?", "Welcher Besuch kam im {month}?"),
        ("{ago} fuhr ich nach {slot}.", "city", "Wann fuhr {a} nach {slot}?", "Wohin fuhr {a} im {month} {year}?"),
    ),
    "es": (
        ("{ago} cociné {slot} para todos.", "dish", "¿Cuándo cocinó {slot}?", "¿Qué cocinó {a} en {month} de {year}?"),
        ("{ago} vino {slot} a tomar café.", "person", "¿Cuándo vino {slot}?", "¿Quién vino de visita en {month}?"),
        ("{ago} viajé a {slot}.", "city", "¿Cuándo viajó {a} a {slot}?", "¿Adónde viajó {a} en {month} de {year}?"),
    ),
}  # fmt: skip
_EVENTS_SHARE = 0.12
_REPLY_SENTENCES = 8, 22


class Dated(Friends):
    """A conversation under construction, with events. With an assistant, only the first person tells facts."""

    def __init__(self, language: str, count: int, seed: int, *, with_assistant: bool) -> None:
        super().__init__(language, count, seed)
        self._with_assistant = with_assistant
        self._told_events: set[tuple[str, int]] = set()

    def _choose_lines(self, who: int) -> list[str]:
        if who == 1 and self._with_assistant:
            return list(self._idle(who, self._random.randrange(*_REPLY_SENTENCES)))
        event = self._event(who) if self._random.random() < _EVENTS_SHARE else []
        return event or super()._choose_lines(who)

    def _event(self, who: int) -> list[str]:
        said, pool, when, what = self._random.choice(_EVENTS[self.language])
        ago, days = self._random.choice(_AGO[self.language])
        told = self._now + timedelta(hours=1)
        key = what, told.month
        if not self._pools.get(pool) or key in self._told_events or told.date() != self._now.date():
            return []  # a second event of this kind in a month would be a second answer
        self._told_events.add(key)
        values: dict[str, Any] = {"ago": ago, "slot": self._pools[pool].pop(), "a": self._names[who]}
        values |= {"month": self._month(told), "year": told.year}
        day = told.date() - timedelta(days=days)
        gold = (self._next_seq,)
        self.questions += [
            Question(when.format_map(values), f"{day.day} {self._month(day)} {day.year}", gold=gold, kind="when"),
            Question(what.format_map(values), values["slot"], gold=gold, kind="in a month"),
        ]
        return [said.format_map(values)]

    def _month(self, day: date | datetime) -> str:
        return MONTHS[self.language].split()[day.month - 1]


def dated(language: str, count: int, seed: int = 0, *, with_assistant: bool = False) -> Conversation:
    """Generate a conversation of this many messages, with events and their dates."""
    told = Dated(language, count, seed, with_assistant=with_assistant).conversation()
    name = f"{'assistant' if with_assistant else 'friends'}, {language}"
    questions = [question for question in told.questions if question.gold]
    return Conversation(f"{name}, {count}", language, told.turns, questions)
