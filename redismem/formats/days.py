"""Read days in texts: periods that a question names, and relative days such as "yesterday". No I/O.

English, German, Spanish and French are read. The time is linear in the length of a text.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache

QUESTION_CHARS = 2_000
"""The number of characters of a question in which a period is searched."""
_RESOLVED_COUNT = 16
_EPOCH = date(1970, 1, 1).toordinal()
_LAST = date.max.toordinal()

_split = str.split
# Written here, because Babel's CLDR data takes 100 ms to load.
_MONTHS = {
    "en": _split("January February March April May June July August September October November December"),
    "de": _split("Januar Februar März April Mai Juni Juli August September Oktober November Dezember"),
    "es": _split("enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre"),
    "fr": _split("janvier février mars avril mai juin juillet août septembre octobre novembre décembre"),
}
_WEEKDAYS = {
    "en": _split("Monday Tuesday Wednesday Thursday Friday Saturday Sunday"),
    "de": _split("Montag Dienstag Mittwoch Donnerstag Freitag Samstag Sonntag"),
    "es": _split("lunes martes miércoles jueves viernes sábado domingo"),
    "fr": _split("lundi mardi mercredi jeudi vendredi samedi dimanche"),
}
_MONTH_OF = {name.casefold(): at for names in _MONTHS.values() for at, name in enumerate(names, 1)}
_SHORT_MONTHS = _split("jan feb mar apr may jun jul aug sep oct nov dec")
_SHORT_MONTH_OF = {name: at for at, name in enumerate(_SHORT_MONTHS, 1)} | {"sept": 9}
_WEEKDAY_OF = {name.casefold(): at for names in _WEEKDAYS.values() for at, name in enumerate(names)}
# These names of months are also other words, so they need a number or one of these words beside them.
_UNSURE = {"may", "march", "mars", *_SHORT_MONTH_OF}
_BEFORE_MONTHS = frozenset(_split("in of since during until early late mid en de im seit du depuis"))

# A relative day: its language, and its distance in days.
_DAYS = {
    "en": {"the day before yesterday": -2, "yesterday": -1, "last night": -1, "today": 0, "tonight": 0,
           "this morning": 0, "this afternoon": 0, "this evening": 0, "tomorrow": 1, "the day after tomorrow": 2},
    "de": {"vorgestern": -2, "gestern": -1, "heute": 0, "morgen": 1, "übermorgen": 2},
    "es": {"anteayer": -2, "ayer": -1, "anoche": -1, "hoy": 0, "mañana": 1, "pasado mañana": 2},
    "fr": {"avant-hier": -2, "hier": -1, "aujourd'hui": 0, "aujourd’hui": 0, "demain": 1, "après-demain": 2},
}  # fmt: skip
_UNITS = {
    "en": {"week": "week", "weekend": "weekend", "month": "month", "year": "year"},
    "de": {"woche": "week", "wochenende": "weekend", "monat": "month", "jahr": "year"},
    "es": {"semana": "week", "fin de semana": "weekend", "mes": "month", "año": "year"},
    "fr": {"semaine": "week", "week-end": "weekend", "mois": "month", "année": "year"},
}
_SPANS = {
    "en": {"day": "day", "days": "day", "weeks": "week", "months": "month", "years": "year"},
    "de": {"tag": "day", "tagen": "day", "wochen": "week", "monaten": "month", "jahren": "year"},
    "es": {"día": "day", "días": "day", "semanas": "week", "meses": "month", "años": "year"},
    "fr": {"jour": "day", "jours": "day", "semaines": "week", "an": "year", "ans": "year"},
}
_LAST_NAMES = r"last|this past|(?:letzte|vorige|vergangene)[nrsm]?|pasad[oa]|derni(?:er|ère)|passée?"
_THIS_NAMES = "this|diese[nrsm]?|est[ea]|cet|cette|ce"
_NEXT_NAMES = r"next|this coming|(?:nächste|kommende)[nrsm]?|próxim[oa]|que viene|prochaine?"
_NUMBER_NAMES = (
    "a one ein einem einer un una une", "two zwei dos deux", "three drei tres trois", "four vier cuatro quatre",
    "five fünf cinco cinq", "six sechs seis", "seven sieben siete sept", "eight acht ocho huit",
    "nine neun nueve neuf", "ten zehn diez dix",
)  # fmt: skip
_NUMBERS = {name: number for number, names in enumerate(_NUMBER_NAMES, 1) for name in names.split()}
_DAY_OF = {name: (language, days) for language, names in _DAYS.items() for name, days in names.items()}
_UNIT_OF = {name: (language, unit) for language, names in _UNITS.items() for name, unit in names.items()}
_UNIT_OF |= {name.casefold(): (language, name) for language, names in _WEEKDAYS.items() for name in names}
_SPAN_OF = _UNIT_OF | {name: (language, span) for language, names in _SPANS.items() for name, span in names.items()}


def _one_of(names: dict[str, tuple[str, str]] | dict[str, tuple[str, int]] | dict[str, int]) -> str:
    return "|".join(map(re.escape, sorted(names, key=len, reverse=True)))


_RELATIVE = re.compile(
    rf"\b(?:(?P<day>{_one_of(_DAY_OF)})"
    rf"|(?:(?P<last>{_LAST_NAMES})|(?P<this>{_THIS_NAMES})|(?P<next>{_NEXT_NAMES}))\s(?P<unit>{_one_of(_UNIT_OF)})"
    rf"|(?P<unit_first>{_one_of(_UNIT_OF)})\s(?:(?P<last_after>{_LAST_NAMES})|(?P<next_after>{_NEXT_NAMES}))"
    rf"|(?P<intro>(?:vor|hace|il\sy\sa)\s)?(?P<number>\d{{1,3}}|{_one_of(_NUMBERS)})\s(?P<span>{_one_of(_SPAN_OF)})"
    r"(?P<ago>\sago)?)\b"
)
# A text without any of these words has no relative day. Looking them up is ten times as fast as the pattern.
_TELLING = frozenset(
    _split(
        "yesterday night today tonight morning afternoon evening tomorrow vorgestern gestern heute morgen "
        "übermorgen anteayer ayer anoche hoy mañana hier aujourd demain week weekend month year woche "
        "wochenende monat jahr semana mes año semaine mois année ago vor hace il"
    )
) | frozenset(_WEEKDAY_OF)
# A question with neither a digit nor any of these words names no day.
_NAMING = _TELLING | frozenset(_MONTH_OF) | frozenset(_SHORT_MONTH_OF)
_DIGIT = re.compile(r"\d")
_WORD = re.compile(r"\w+")
_NUMBER = re.compile(r"(\d{1,2})(?:st|nd|rd|th|er)?")
_YEAR = re.compile(r"(?:19|20)\d\d")
_ISO = re.compile(r"\b((?:19|20)\d\d)-(\d\d)(?:-(\d\d))?\b")
_FRENCH = frozenset(_split("je j nous vous elle est était une les avec dans suis"))
# "Morning" in German and Spanish is the word for "tomorrow"; these words before it tell them apart.
_BEFORE_MORNING = frozenset(_split("am guten jeden heute gestern frühen la esta por de una cada las"))

Range = tuple[date, date]
"""The first and the last day."""


def date_of(day: int) -> date:
    """Return the date of a day number, clamped to the years 1 to 9999."""
    return date.fromordinal(min(max(day + _EPOCH, 1), _LAST))


@lru_cache(maxsize=4_096)
def name_day(day: int) -> str:
    """Return a day with its weekday in English, such as `Sunday 7 May 2023`."""
    named = date_of(day)
    return f"{_WEEKDAYS['en'][named.weekday()]} {_name((named, named), 'en')}"


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
        return (
            (not self.years or day.year in self.years)
            and (not self.months or day.month in self.months)
            and (not self.days or day.day in self.days)
            and (not self.weekdays or day.weekday() in self.weekdays)
            and (not self.ranges or any(first <= day <= last for first, last in self.ranges))
        )


def read_period(question: str, today: int) -> Period | None:
    """Return the days that a question of this day names, such as a month or "last week"; `None` if it names none."""
    text = question[:QUESTION_CHARS].lower()
    words, ranges = _WORD.findall(text), list[Range]()
    if _NAMING.isdisjoint(words) and _DIGIT.search(text) is None:
        return None
    if not _TELLING.isdisjoint(words):
        ranges = [found for _, found, _ in _relative(text, date_of(today))]
    if ranges:
        text = _RELATIVE.sub(" ", text)
    if "-" in text:
        ranges += _iso_days(text)
        text = _ISO.sub(" ", text)
    if ranges:
        words = _WORD.findall(text)
    years = frozenset(int(word) for word in words if word.isdigit() and _YEAR.fullmatch(word))
    months, days = _months(words)
    weekdays = frozenset(_WEEKDAY_OF[word] for word in words if word in _WEEKDAY_OF)
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
        month = _MONTH_OF.get(word) or _SHORT_MONTH_OF.get(word)
        if month is None:
            continue
        beside = [*words[max(0, at - 1) : at], *words[at + 1 : at + 2]]
        if at > 1 and words[at - 1] in ("of", "de"):
            beside.append(words[at - 2])
        numbers = [int(found[1]) for found in map(_NUMBER.fullmatch, beside) if found]
        is_sure = word not in _UNSURE or bool(at and words[at - 1] in _BEFORE_MONTHS)
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
    if _TELLING.isdisjoint(_WORD.findall(lower)):
        return text
    parts, at, resolved = list[str](), 0, set[str]()
    for match, found, language in _relative(lower, date_of(said_day)):
        if match[0] not in resolved and match["this"] is None and _DAY_OF.get(match[0], ("", 1))[1]:
            resolved.add(match[0])
            parts += [text[at : match.end()], f" ({_name(found, language)})"]
            at = match.end()
            if len(resolved) == _RESOLVED_COUNT:
                break
    return "".join([*parts, text[at:]]) if parts else text


def _relative(lower: str, now: date) -> Iterator[tuple[re.Match[str], Range, str]]:
    """Yield each relative day in a text of lower case, with its first and last day and its language."""
    for match in _RELATIVE.finditer(lower):
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
        return not _FRENCH.isdisjoint(_WORD.findall(around))
    if match["day"] in ("morgen", "mañana"):
        before = _WORD.findall(lower[max(0, match.start() - 20) : match.start()])
        return not before or before[-1] not in _BEFORE_MORNING
    return True


def _resolve(match: re.Match[str], now: date) -> tuple[Range, str] | None:
    if (day := match["day"]) is not None:
        language, days = _DAY_OF[day]
        there = now + timedelta(days=days)
        return (there, there), language
    if (span := match["span"]) is not None:
        language, unit = _SPAN_OF[span]
        if match["intro"] is None and match["ago"] is None:
            return None
        number = match["number"]
        return _shift(now, unit, -(int(number) if number.isdigit() else _NUMBERS[number])), language
    language, unit = _UNIT_OF[match["unit"] or match["unit_first"]]
    steps = -1 if match["last"] or match["last_after"] else 0 if match["this"] else 1
    if unit in _WEEKDAYS[language]:
        if steps > 0:
            return None  # "next Friday" means this week's to some, next week's to others
        weekday = _WEEKDAYS[language].index(unit)
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
    months = _MONTHS[language]
    end = f"{last.day} {months[last.month - 1]} {last.year}"
    if first == last:
        return end
    if (first.day, first.month, last.day, last.month) == (1, 1, 31, 12):
        return f"{last.year}"
    if days == _month(first, 0):
        return f"{months[last.month - 1]} {last.year}"
    begin = f"{first.day}" if first.month == last.month else f"{first.day} {months[first.month - 1]}"
    return f"{begin}–{end}"
