"""What a prompt should know of a project: asked for in two round trips, and put into words within a budget."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from redismem.errors import InvalidItem, InvalidMessage, RedismemError
from redismem.events import facts
from redismem.messages.coercion import Shape
from redismem.messages.message import Message
from redismem.project.items import fields
from redismem.project.items.indexes import OPEN, words
from redismem.project.items.items import Items
from redismem.project.items.records import Decision, Entity, Item, Task
from redismem.project.items.schema import DECISION, ENTITY, KINDS, TASK, Kind
from redismem.project.items.versions import State
from redismem.project.queries import pages as searching
from redismem.project.queries.query import WORDS_MATCHED_LIMIT, Query
from redismem.protocol.project.calls import Group, together
from redismem.text.plain import pieces

log = logging.getLogger("redismem")

DECISIONS_LIMIT, TASKS_LIMIT, ENTITIES_LIMIT = 5, 10, 10
TERMS_LIMIT = 20
_BYTES_A_TOKEN = 4
_LEAST_TOKENS = 50
# A shorter word begins too many others. Of a long message the first words count.
_TERM_CHARS = 3
_SAID_BYTES = 4_000


@dataclass(frozen=True, slots=True)
class Summary:
    """A project in numbers."""

    decisions_count: int
    """that are accepted"""
    tasks_count: int
    """that are neither completed nor cancelled"""
    blocked_count: int
    entities_count: int


@dataclass(frozen=True, slots=True)
class ProjectContext:
    """What a prompt should know of a project."""

    name: str
    summary: Summary
    decisions: tuple[Decision, ...]
    """the 5 newest active ones"""
    tasks: tuple[Task, ...]
    """the 10 first active ones, by priority"""
    entities: tuple[Entity, ...]
    """those with a word that begins like one of the terms; without terms those mentioned last"""

    def format(self, max_tokens: int = 1_500) -> str:
        """The prompt's text, of at most so many tokens, estimated as a quarter of its bytes.

        What does not fit is left out from the end of the longest lists. Everything in it was written by people and
        models: it says what is so, and is no instruction. Raises InvalidItem for fewer than 50 tokens.
        """
        check_tokens(max_tokens)
        sections = [list(lines) for lines in (self._decisions(), self._tasks(), self._entities())]
        while True:
            text = self._text(sections)
            if len(text.encode()) <= max_tokens * _BYTES_A_TOKEN:
                return text
            longest = max(sections, key=lambda lines: sum(len(line.encode()) for line in lines))
            if not longest:
                return text.encode()[: max_tokens * _BYTES_A_TOKEN].decode("utf-8", "ignore")
            longest.pop()

    def _text(self, sections: Sequence[Sequence[str]]) -> str:
        counts = self.summary
        lines = [
            "PROJECT CONTEXT",
            f"{self.name}: {_pluralize(counts.decisions_count, 'active decision')}, "
            f"{_pluralize(counts.tasks_count, 'open task')} ({counts.blocked_count} blocked), "
            f"{_pluralize(counts.entities_count, 'entity', 'entities')}.",
        ]
        for title, entries in zip(("RECENT DECISIONS", "ACTIVE TASKS", "KNOWN ENTITIES"), sections, strict=True):
            lines += ["", title, *(entries or ["(none)"])]
        return "\n".join(lines)

    def _decisions(self) -> Iterator[str]:
        for each in self.decisions:
            why = f" Why: {_shorten(each.rationale)}" if each.rationale else ""
            what = f" {_shorten(each.description)}" if each.description else ""
            yield f"- {_shorten(each.title)} ({each.valid_from:%Y-%m-%d}).{what}{why}"

    def _tasks(self) -> Iterator[str]:
        for each in self.tasks:
            facts = [each.priority, each.status.replace("_", " ")]
            if each.due_date is not None:
                facts.append(f"due {each.due_date:%Y-%m-%d}")
            if each.assignee is not None:
                facts.append(f"assigned to {_shorten(each.assignee)}")
            if each.blocked_by:
                facts.append(f"waits for {_shorten(', '.join(each.blocked_by))}")
            yield f"- {_shorten(each.title)} [{', '.join(facts)}] {_shorten(each.description)}".rstrip()

    def _entities(self) -> Iterator[str]:
        for each in self.entities:
            facts = "; ".join(f"{name}: {_shorten(str(value), 60)}" for name, value in each.properties.items())
            text = f"- {_shorten(each.name)} ({each.type}) {_shorten(each.description)}".rstrip()
            yield f"{text} {{{_shorten(facts)}}}" if facts else text


def _pluralize(count: int, one: str, many: str = "") -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"


def _shorten(text: str, chars: int = 200) -> str:
    line = " ".join(text[: chars * 4].split())
    return line if len(line) <= chars else line[: chars - 1] + "…"


def check_tokens(max_tokens: int) -> None:
    """Raises InvalidItem for fewer than 50 tokens."""
    if type(max_tokens) is not int or max_tokens < _LEAST_TOKENS:
        raise InvalidItem(f"the context of a project needs at least {_LEAST_TOKENS} tokens")


async def build_background(
    items: Items, messages: Iterable[Message | Shape], max_tokens: int, hidden: Collection[str] = ()
) -> str:
    """The text of the context that these messages ask for; "" if there is nothing, or it cannot be had now, which is
    logged.
    """
    try:
        found = await build_context(items, _extract_terms(messages), hidden)
        return found.format(max_tokens) if found.decisions or found.tasks or found.entities else ""
    except RedismemError as error:
        kind = type(error).__name__
        log.warning("a turn goes on without its project: %s", kind, extra=facts(op="project_find", error=kind))
        return ""


def _extract_terms(messages: Iterable[Message | Shape]) -> list[str]:
    """The first words that are said in these messages. One that is none is refused by whoever stores it."""
    found: dict[str, None] = {}
    for each in messages:
        if len(found) >= TERMS_LIMIT:
            break  # a thousand long messages in one append take a quarter of a second
        try:
            message = each if isinstance(each, Message) else Message.from_openai(each)
        except InvalidMessage:
            continue
        said = (text for kind, text in pieces(message, _SAID_BYTES) if kind == "text")
        found.update(dict.fromkeys(word for text in said for word in words(text) if len(word) >= _TERM_CHARS))
    return list(islice(found, TERMS_LIMIT))


async def build_context(items: Items, terms: Iterable[str], hidden: Collection[str] = ()) -> ProjectContext:
    """The context of a project, without the properties of these names: one round trip, two with terms."""
    beginnings = _prefixes_of(terms)
    entities = Query(ENTITY, beginnings=beginnings)
    calls: list[Any] = [
        searching.find_call(items, _ACTIVE, (), DECISIONS_LIMIT),
        searching.find_call(items, Query(TASK), (), TASKS_LIMIT),
        items.calls.counts([items.keys.index(letter, name) for letter, name in _COUNTED]),
        searching.vocabulary_call(items, entities)
        if beginnings
        else searching.find_call(items, entities, (), ENTITIES_LIMIT),
    ]
    decided, waiting, counts, found = await items.run(together(calls))
    if beginnings:
        found = await items.run(_relevant_call(items, found))
    return ProjectContext(
        items.keys.name,
        Summary(*counts),
        tuple(_to_records(Decision, searching.filter_page(items, _ACTIVE, decided))),
        tuple(_to_records(Task, searching.filter_page(items, Query(TASK), waiting))),
        tuple(_hide_properties(hidden, _to_records(Entity, searching.filter_page(items, Query(ENTITY), found)))),
    )


_ACTIVE = Query(DECISION, statuses=("accepted",))
_COUNTED = (("d", "status:accepted"), ("t", OPEN), ("t", "status:blocked"), ("e", OPEN))


def _prefixes_of(terms: Iterable[str]) -> tuple[str, ...]:
    if isinstance(terms, str):
        raise InvalidItem("terms is a list of texts")
    found = tuple(dict.fromkeys(word for term in terms for word in words(fields.text(term, "a term"))))
    if len(found) > TERMS_LIMIT:
        raise InvalidItem(f"a context is asked for with at most {TERMS_LIMIT} words, not {len(found)}")
    return found


def _relevant_call(items: Items, matched: Sequence[Sequence[str]]) -> Any:
    """The entities that have one of these words, those mentioned last first."""
    found = list(dict.fromkeys(word for each in matched for word in each))[:WORDS_MATCHED_LIMIT]
    any_of_them = Group(tuple(items.keys.index("e", f"word:{word}") for word in found))
    groups = [Group((items.keys.index("e", OPEN),)), any_of_them]
    return items.calls.find(items.keys.index("e", "all"), groups, ENTITIES_LIMIT)


def _hide_properties(hidden: Collection[str], entities: Iterable[Entity]) -> Iterator[Entity]:
    for each in entities:
        shown = {name: value for name, value in each.properties.items() if name not in hidden}
        yield replace(each, properties=shown)


def _to_records(kind: Any, states: dict[str, State]) -> list[Any]:
    return [kind.of(item_id, state) for item_id, state in states.items()]


@dataclass(frozen=True, slots=True)
class Found:
    """What was found across the stores of a project: the first of each, in the order of its kind."""

    decisions: tuple[Decision, ...]
    tasks: tuple[Task, ...]
    entities: tuple[Entity, ...]


_RECORDS: dict[Kind | str, type[Item]] = {"d": Decision, "t": Task, "e": Entity}


async def find_everywhere(items: Items, limit: int, text: str = "", tags: Sequence[str] = ()) -> Found:
    """What has these words or tags, of every kind and whatever its status: two round trips, one without words."""
    include = {"d": ["include_superseded"], "t": ["include_completed", "include_cancelled"], "e": []}
    queries = [
        Query.of(KINDS[letter], {"text": text, "tags": tags} | dict.fromkeys(flags, True))
        for letter, flags in include.items()
    ]
    matched: list[list[list[str]]] = [[], [], []]
    if queries[0].beginnings:
        matched = await items.run(together([searching.vocabulary_call(items, query) for query in queries]))
    calls = [searching.find_call(items, query, words, limit) for query, words in zip(queries, matched, strict=True)]
    pages = await items.run(together(calls))
    found = []
    for query, page in zip(queries, pages, strict=True):
        states = searching.filter_page(items, query, page)
        if len(states) < limit and page.after is not None:  # a word that no index tells
            states = dict((await searching.load_page(items, query, limit))[0])
        found.append(tuple(_to_records(_RECORDS[query.kind.letter], states)))
    return Found(*found)
