"""One customer's year: consecutive transcripts of an airline's agent, and the actions in each of them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.remembered.conversation import Conversation, Question, Turn

# What changes something for the customer, and what of it somebody asks for later.
_DONE = {
    "book_reservation": ("From where to where was the flight that was booked in {when}?", ("origin", "destination")),
    "cancel_reservation": ("Which reservation was cancelled in {when}?", ("reservation_id",)),
    "update_reservation_flights": (
        "Which reservation got other flights in {when}, and how was it paid?",
        ("reservation_id", "payment_id"),
    ),
    "update_reservation_baggages": ("To which reservation were bags added in {when}?", ("reservation_id",)),
    "update_reservation_passengers": ("In which reservation were passengers changed in {when}?", ("reservation_id",)),
    "send_certificate": ("What was given as a consolation in {when}?", ("amount",)),
}


def customer(file: Path, count: int, seed: int = 0) -> Conversation:
    """Join whole transcripts into one conversation of at least `count` messages.

    System messages are left out: they would be pinned.
    """
    with file.open(encoding="utf-8") as lines:
        transcripts = [json.loads(line)["messages"] for line in lines]
    random.Random(seed).shuffle(transcripts)
    turns: list[Turn] = []
    questions: list[Question] = []
    day = datetime(2024, 1, 3, 9, tzinfo=UTC)
    for transcript in transcripts:
        if len(turns) >= count:
            break
        spoken = [message for message in transcript if message.get("role") != "system"]
        questions += _questions(spoken, f"{day:%B}")
        for at, message in enumerate(spoken):
            turns.append(Turn(message, int((day + timedelta(seconds=40 * at)).timestamp() * 1000)))
        day += timedelta(days=9, hours=3)
    return Conversation("customer", "en", turns, list(dict.fromkeys(questions)))


def _questions(spoken: Sequence[dict[str, Any]], when: str) -> Iterator[Question]:
    for message in spoken:
        for call in message.get("tool_calls") or ():
            asked, names = _DONE.get(call["function"]["name"], ("", ()))
            given = json.loads(call["function"]["arguments"]) if asked else {}
            if answer := " ".join(str(given[name]) for name in names if given.get(name)):
                yield Question(asked.format(when=when), answer)
