"""Read days in texts: periods that a question names, and relative days such as "yesterday".

English, German, Spanish and French are read. The time is linear in the length of a text.
"""

from __future__ import annotations

import json
import re
from calendar import monthrange
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

QUESTION_CHARS = 2_000
"""The number of characters of a question in which a period is searched."""
_RESOLVED_COUNT = 16
_EPOCH = date(1970, 1, 1).toordinal()
_LAST = date.max.toordinal()
_DIGIT = re.compile(r"\d")
_WORD = re.compile(r"\w+")
_NUMBER = re.compile(r"(\d{1,2})(?:st|nd|rd|th|er)?")
_YEAR = re.compile(r"(?:19|20)\d\d")
_ISO = re.compile(r"\b((?:19|20)\d\d)-(\d\d)(?:-(\d\d))?\b")


class _Words:
    """The words of `days.json`. It is a file of its own, because Babel's CLDR data takes 100 ms to load."""

    def __init__(self) -> None:
        listed: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_bytes())
        self.months = {language: names.split() for language, names in listed["months"].items()}
        self.weekdays = {language: names.split() for language, names in listed["weekdays"].items()}
        self.weekday_of = _places(self.weekdays.values(), 0)
        short_months = listed["short_months"].split()
        self.month_of = _places([short_months, *self.months.values()], 1) | {"sept": 9}
        # These names of months are also other words, so they need a number or one of these words beside them.
        self.unsure = {"march", "mars", "sept", *short_months}
        self.before_months = frozenset(listed["before_months"].split())
        self.numbers = {name: at for at, names in enumerate(listed["numbers"], 1) for name in names.split()}
        # A relative day: its language, and its distance in days. A unit: its language, and its name.
        self.day_of = _by_name(listed["days"])
        weekdays = {language: {name.casefold(): name for name in names} for language, names in self.weekdays.items()}
        self.unit_of = _by_name(listed["units"]) | _by_name(weekdays)
        self.span_of = self.unit_of | _by_name(listed["spans"])
        # A text without any of these words has no relative day. Looking them up is ten times as fast as the pattern.
        self.telling = frozenset((*" ".join(listed["telling"]).split(), *self.weekday_of))
        # A question with neither a digit nor any of these words names no day.
        self.naming = self.telling | frozenset(self.month_of)
        self.french = frozenset(listed["french"].split())
        # "Morning" in German and Spanish is the word for "tomorrow"; these words before it tell them apart.
        self.before_morning = frozenset(listed["before_morning"].split())
        unit, last, coming = _one_of(self.unit_of), listed["last"], listed["next"]
        self.relative = re.compile(
            rf"\b(?:(?P<day>{_one_of(self.day_of)})"
            rf"|(?:(?P<last>{last})|(?P<this>{listed['this']})|(?P<next>{coming}))\s(?P<unit>{unit})"
            rf"|(?P<unit_first>{unit})\s(?:(?P<last_after>{last})|(?P<next_after>{coming}))"
            r"|(?P<intro>(?:vor|hace|il\sy\sa)\s)?"
            rf"(?P<number>\d{{1,3}}|{_one_of(self.numbers)})\s(?P<span>{_one_of(self.span_of)})(?P<ago>\sago)?)\b"
        )


def _places(lists: Iterable[list[str]], first: int) -> dict[str, int]:
    return {name.casefold(): at for names in lists for at, name in enumerate(names, first)}


def _by_name(table: Mapping[str, Mapping[str, T]]) -> dict[str, tuple[str, T]]:
    return {name: (language, value) for language, names in table.items() for name, value in names.items()}


def _one_of(names: Iterable[str]) -> str:
    return "|".join(map(re.escape, sorted(names, key=len, reverse=True)))


_words = cache(_Words)

Range = tuple[date, date]
"""The first and the last day."""


def date_of(day: int) -> date:
    """Return the date of a day number, clamped to the years 1 to 9999."""
    return date.fromordinal(min(max(day + _EPOCH, 1), _LAST))


@lru_cache(maxsize=4_096)
def name_day(day: int) -> str:
    """Return a day with its weekday in English, such as `Sunday 7 May 2023`."""
    named = date_of(day)
    return f"{_words().weekdays['en'][named.weekday()]} {_name((named, named), 'en')}"


@dataclass(frozen=True, slots=True)
class Period:
    """The days that a question names. A condition without values is met by all days."""

    years: frozenset[int]
    months: frozenset[int]
    days: frozenset[int]
    """Days of a month. The day after such a day matches too, since people often tell of a day on the next one."""
    weekdays: frozenset[int]
    ranges: tuple[Range, ...]

    def matches(self, day: int) -> bool:
        """True if the day with this number meets all conditions."""
        named = date_of(day)
        return self._has(named) or (bool(self.days) and self._has(date_of(day - 1)))

    def _has(self, day: date) -> bool:
        parts = zip(
            (self.years, self.months, self.days, self.weekdays),
            (day.year, day.month, day.day, day.weekday()),
            strict=True,
        )
        return all(not allowed or part in allowed for allowed, part in parts) and (
            not self.ranges or any(first <= day <= last for first, last in self.ranges)
        )


def read_period(question: str, today: int) -> Period | None:
    """Return the days that a question of this day names, such as a month or "last week"; `None` if it names none."""
    text = question[:QUESTION_CHARS].lower()
    words, ranges = _WORD.findall(text), list[Range]()
    if _words().naming.isdisjoint(words) and _DIGIT.search(text) is None:
        return None
    if not _words().telling.isdisjoint(words):
        ranges = [found for _, found, _ in _relative(text, date_of(today))]
    if ranges:
        text = _words().relative.sub(" ", text)
    if "-" in text:
        ranges += _iso_days(text)
        text = _ISO.sub(" ", text)
    if ranges:
        words = _WORD.findall(text)
    years = frozenset(int(word) for word in words if word.isdigit() and _YEAR.fullmatch(word))
    months, days = _months(words)
    weekdays = frozenset(_words().weekday_of[word] for word in words if word in _words().weekday_of)
    if not (years or months or weekdays or ranges):
        return None
    return Period(years, months, days, weekdays, tuple(ranges))


def _iso_days(text: str) -> Iterator[Range]:
    """Yield the days and months that are written like 2023-05-07 or 2023-05."""
    for year, month, day in _ISO.findall(text):
        if 1 <= int(month) <= 12 and (not day or 1 <= int(day) <= monthrange(int(year), int(month))[1]):
            first = date(int(year), int(month), int(day or 1))
            yield first, first if day else _month(first, 0)[1]


def _months(words: list[str]) -> tuple[frozenset[int], frozenset[int]]:
    """Return the months, and the days of a month, that these words name."""
    months, days = set[int](), set[int]()
    for at, word in enumerate(words):
        month = _words().month_of.get(word)
        if month is None:
            continue
        beside = [*words[max(0, at - 1) : at], *words[at + 1 : at + 2]]
        if at > 1 and words[at - 1] in ("of", "de"):
            beside.append(words[at - 2])
        numbers = [int(found[1]) for found in map(_NUMBER.fullmatch, beside) if found]
        is_sure = word not in _words().unsure or bool(at and words[at - 1] in _words().before_months)
        if is_sure or numbers or any(map(_YEAR.fullmatch, beside)):
            months.add(month)
            days.update(number for number in numbers if 1 <= number <= 31)
    return frozenset(months), frozenset(days)


def resolve_days(text: str, said_day: int) -> str:
    """Return the text with the date behind each relative day: "yesterday (7 May 2023)".

    Each expression is resolved once, and at most 16 in a text. "Today" and "this week" stay as they are. `said_day` is
    the day of the text.
    """
    lower = text.lower()
    if len(lower) != len(text):
        return text  # lower case has other places
    if _words().telling.isdisjoint(_WORD.findall(lower)):
        return text
    parts, at, resolved = list[str](), 0, set[str]()
    for match, found, language in _relative(lower, date_of(said_day)):
        if match[0] not in resolved and match["this"] is None and _words().day_of.get(match[0], ("", 1))[1]:
            resolved.add(match[0])
            parts += [text[at : match.end()], f" ({_name(found, language)})"]
            at = match.end()
            if len(resolved) == _RESOLVED_COUNT:
                break
    return "".join([*parts, text[at:]]) if parts else text


def _relative(lower: str, now: date) -> Iterator[tuple[re.Match[str], Range, str]]:
    """Yield each relative day in a text of lower case, with its first and last day and its language."""
    for match in _words().relative.finditer(lower):
        try:
            found = _resolve(match, now)
        except (OverflowError, ValueError):
            continue  # before the year 1 or after 9999
        if found is not None and _is_meant(match, lower):
            yield match, *found


def _is_meant(match: re.Match[str], lower: str) -> bool:
    """True unless the expression has another meaning in the language of the text."""
    if match["day"] == "hier":  # German for "here"
        around = lower[max(0, match.start() - 200) : match.end() + 200]
        return not _words().french.isdisjoint(_WORD.findall(around))
    if match["day"] in ("morgen", "mañana"):
        before = _WORD.findall(lower[max(0, match.start() - 20) : match.start()])
        return not before or before[-1] not in _words().before_morning
    return True


def _resolve(match: re.Match[str], now: date) -> tuple[Range, str] | None:
    if (day := match["day"]) is not None:
        language, days = _words().day_of[day]
        there = now + timedelta(days=days)
        return (there, there), language
    if (span := match["span"]) is not None:
        language, unit = _words().span_of[span]
        if match["intro"] is None and match["ago"] is None:
            return None
        number = match["number"]
        return _shift(now, unit, -(int(number) if number.isdigit() else _words().numbers[number])), language
    language, unit = _words().unit_of[match["unit"] or match["unit_first"]]
    steps = -1 if match["last"] or match["last_after"] else 0 if match["this"] else 1
    if unit in _words().weekdays[language]:
        if steps > 0:
            return None  # "next Friday" means this week's to some, next week's to others
        weekday = _words().weekdays[language].index(unit)
        there = now + timedelta(days=weekday - now.weekday()) if steps == 0 else _previous(now, weekday)
        return (there, there), language
    return _shift(now, unit, steps), language


def _previous(now: date, weekday: int) -> date:
    return now - timedelta(days=(now.weekday() - weekday - 1) % 7 + 1)


def _shift(now: date, unit: str, steps: int) -> Range:
    """Return the day, week, weekend, month or year that is this many steps away."""
    if unit == "day":
        there = now + timedelta(days=steps)
        return there, there
    if unit in ("week", "weekend"):
        monday = now + timedelta(days=7 * steps - now.weekday())
        return monday + timedelta(days=5 if unit == "weekend" else 0), monday + timedelta(days=6)
    if unit == "month":
        return _month(now, steps)
    return date(now.year + steps, 1, 1), date(now.year + steps, 12, 31)


def _month(now: date, steps: int) -> Range:
    year, month = divmod(now.year * 12 + now.month - 1 + steps, 12)
    return date(year, month + 1, 1), date(year, month + 1, monthrange(year, month + 1)[1])


def _name(days: Range, language: str) -> str:
    """Return a name of these days: a day, a month, a year, or their first and last day."""
    first, last = days
    months = _words().months[language]
    end = f"{last.day} {months[last.month - 1]} {last.year}"
    if first == last:
        return end
    if (first.day, first.month, last.day, last.month) == (1, 1, 31, 12):
        return f"{last.year}"
    if days == _month(first, 0):
        return f"{months[last.month - 1]} {last.year}"
    begin = f"{first.day}" if first.month == last.month else f"{first.day} {months[first.month - 1]}"
    return f"{begin}–{end}"
