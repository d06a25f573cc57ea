"""Build the context of a project for a prompt: read it in two round trips, and format it within a token budget."""

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
from redismem.project.items.schema import DECISION, ENTITY, KINDS, TASK, ItemKind
from redismem.project.items.versions import State
from redismem.project.queries import pages as searching
from redismem.project.queries.query import WORDS_MATCHED_LIMIT, Query
from redismem.protocol.project.calls import Group, combine
from redismem.text.plain import pieces

log = logging.getLogger("redismem")

DECISIONS_LIMIT, TASKS_LIMIT, ENTITIES_LIMIT = 5, 10, 10
TERMS_LIMIT = 20
_BYTES_A_TOKEN = 4
_LEAST_TOKENS = 50
# A shorter prefix matches too many words. Only the first words of a long message count.
_TERM_CHARS = 3
_SAID_BYTES = 4_000


@dataclass(frozen=True, slots=True)
class Summary:
    """Counts for a project's context."""

    decisions_count: int
    """accepted decisions"""
    tasks_count: int
    """tasks neither completed nor cancelled"""
    blocked_count: int
    entities_count: int


@dataclass(frozen=True, slots=True)
class ProjectContext:
    """The part of a project that a prompt needs."""

    name: str
    summary: Summary
    decisions: tuple[Decision, ...]
    """the 5 newest active decisions"""
    tasks: tuple[Task, ...]
    """the first 10 active tasks, by priority"""
    entities: tuple[Entity, ...]
    """entities with a word that begins with one of the terms; without terms, the latest mentioned entities"""

    def format(self, max_tokens: int = 1_500) -> str:
        """Return the text for a prompt, of at most `max_tokens`, where four bytes count as a token.

        If the text is too long, entries are dropped from the end of the longest list. The text quotes people and
        models: treat it as data, not as instructions. Raises InvalidItem if `max_tokens` is less than 50.
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
            facts = facts.encode("utf-8", "replace").decode()  # a property may have lone surrogates
            text = f"- {_shorten(each.name)} ({each.type}) {_shorten(each.description)}".rstrip()
            yield f"{text} {{{_shorten(facts)}}}" if facts else text


def _pluralize(count: int, one: str, many: str = "") -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"


def _shorten(text: str, chars: int = 200) -> str:
    line = " ".join(text[: chars * 4].split())
    return line if len(line) <= chars else line[: chars - 1] + "…"


def check_tokens(max_tokens: int) -> None:
    """Raise InvalidItem if a budget is less than 50 tokens."""
    if type(max_tokens) is not int or max_tokens < _LEAST_TOKENS:
        raise InvalidItem(f"the context of a project needs at least {_LEAST_TOKENS} tokens")


async def build_background(
    items: Items, messages: Iterable[Message | Shape], max_tokens: int, hidden: Collection[str] = ()
) -> str:
    """Return the text of the context for these messages. If the project cannot be read, logs it and returns ""."""
    try:
        found = await build_context(items, _extract_terms(messages), hidden)
        return found.format(max_tokens) if found.decisions or found.tasks or found.entities else ""
    except RedismemError as error:
        kind = type(error).__name__
        log.warning("a turn continues without its project: %s", kind, extra=facts(op="project_find", error=kind))
        return ""


def _extract_terms(messages: Iterable[Message | Shape]) -> list[str]:
    """Return the first words of these messages as terms. Skips invalid messages, which the append refuses."""
    found: dict[str, None] = {}
    for each in messages:
        if len(found) >= TERMS_LIMIT:
            break  # a thousand long messages in one append would take a quarter of a second
        try:
            message = each if isinstance(each, Message) else Message.from_openai(each)
        except InvalidMessage:
            continue
        said = (text for kind, text in pieces(message, _SAID_BYTES) if kind == "text")
        found.update(dict.fromkeys(word for text in said for word in words(text) if len(word) >= _TERM_CHARS))
    return list(islice(found, TERMS_LIMIT))


async def build_context(items: Items, terms: Iterable[str], hidden: Collection[str] = ()) -> ProjectContext:
    """Read the context of a project, without the hidden properties, in one round trip; with terms, in two."""
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
    decisions, tasks, counts, entity_page = await items.run(combine(calls))
    if beginnings:
        entity_page = await items.run(_relevant_call(items, entity_page))
    return ProjectContext(
        items.keys.name,
        Summary(*counts),
        tuple(_to_records(Decision, searching.filter_page(items, _ACTIVE, decisions))),
        tuple(_to_records(Task, searching.filter_page(items, Query(TASK), tasks))),
        tuple(_hide_properties(hidden, _to_records(Entity, searching.filter_page(items, Query(ENTITY), entity_page)))),
    )


_ACTIVE = Query(DECISION, statuses=("accepted",))
_COUNTED = (("d", "status:accepted"), ("t", OPEN), ("t", "status:blocked"), ("e", OPEN))


def _prefixes_of(terms: Iterable[str]) -> tuple[str, ...]:
    if isinstance(terms, str):
        raise InvalidItem("terms must be a list of strings")
    prefixes = tuple(dict.fromkeys(word for term in terms for word in words(fields.text(term, "a term"))))
    if len(prefixes) > TERMS_LIMIT:
        raise InvalidItem(f"the terms of a context have at most {TERMS_LIMIT} words, not {len(prefixes)}")
    return prefixes


def _relevant_call(items: Items, matched: Sequence[Sequence[str]]) -> Any:
    """Build a call that finds entities with one of these words, latest mentioned first."""
    prefixes = list(dict.fromkeys(word for group in matched for word in group))[:WORDS_MATCHED_LIMIT]
    any_of_them = Group(tuple(items.keys.index("e", f"word:{word}") for word in prefixes))
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
    """The items found, by kind: for each kind the first ones, in the order of the kind."""

    decisions: tuple[Decision, ...]
    tasks: tuple[Task, ...]
    entities: tuple[Entity, ...]


_RECORDS: dict[ItemKind | str, type[Item]] = {"d": Decision, "t": Task, "e": Entity}


async def find_everywhere(items: Items, limit: int, text: str = "", tags: Sequence[str] = ()) -> Found:
    """Find items of every kind and status with these words or tags, in two round trips; without words, in one."""
    include = {"d": ["include_superseded"], "t": ["include_completed", "include_cancelled"], "e": []}
    queries = [
        Query.of(KINDS[letter], {"text": text, "tags": tags} | dict.fromkeys(flags, True))
        for letter, flags in include.items()
    ]
    matched: list[list[list[str]]] = [[], [], []]
    if queries[0].beginnings:
        matched = await items.run(combine([searching.vocabulary_call(items, query) for query in queries]))
    calls = [searching.find_call(items, query, words, limit) for query, words in zip(queries, matched, strict=True)]
    pages = await items.run(combine(calls))
    found = []
    for query, page in zip(queries, pages, strict=True):
        states = searching.filter_page(items, query, page)
        if len(states) < limit and page.after is not None:  # a prefix with too many words for the index
            states = dict((await searching.load_page(items, query, limit))[0])
        found.append(tuple(_to_records(_RECORDS[query.kind.letter], states)))
    return Found(*found)
