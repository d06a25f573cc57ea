"""The layout is in five places: the names in protocol/layout.py, the scripts, their heads, lua/README.md, the decoders.

All of them agree. Each rule is shown to fail on a small wrong example, for each side that can be wrong.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from support.quarantined import quarantine_of
from support.script_text import Text, header, text

from redismem.protocol import layout, replies, scripts
from redismem.protocol.keys import Keys, ShardKeys
from redismem.protocol.quarantine import of_session
from redismem.protocol.ring import ID_BYTES
from redismem.protocol.server_errors import ServerError
from redismem.protocol.session import append_ids

ROOT = Path(__file__).parents[2]
ROOMS = ("protocol", "inspection")
# What projects, records and owners store has a layout of its own: test_project_layout.py, test_record_layout.py.
OF_OTHERS = {path.stem for room in ("project", "record", "quarantine") for path in (ROOT / "lua" / room).iterdir()}
WORDS_OF_OTHERS = {"VERSION", "NAME", "FORMAT", "WIDE", "LIVE"}
DECODING = ("replies", "invariants", "check", "keys", "queue/calls", "session/calls", "live/calls")


@dataclass(frozen=True)
class Said:
    """The texts that must agree."""

    fields: frozenset[str]
    sources: dict[str, str]
    readme: str
    modules: dict[str, str]
    version: int = layout.LAYOUT_VERSION

    def texts(self) -> dict[str, Text]:
        return {name: text(name, source) for name, source in self.sources.items()}

    def table(self, head: str) -> list[list[str]]:
        """Return the rows of the README table with this first column."""
        (found,) = re.findall(rf"^\| {head} \|.*\n\|[-|]+\n((?:\|.*\n?)+)", self.readme, re.MULTILINE)
        return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in found.splitlines()]


def field_names() -> frozenset[str]:
    """Return the names of fields in layout.py, and the beginnings of names."""
    named = [value for name, value in vars(layout).items() if name.isupper() and isinstance(value, bytes)]
    return frozenset(name.decode() for name in (*named, *layout.OLDER_IDS) if re.fullmatch(rb"[a-z_]+:?", name))


def as_it_is() -> Said:
    folders = [ROOT / "redismem" / room for room in ROOMS]
    modules = {
        path.relative_to(folder).with_suffix("").as_posix(): path for folder in folders for path in folder.rglob("*.py")
    }
    return Said(
        field_names(),
        {name: scripts.load(name).source.decode() for name in scripts.names() if name not in OF_OTHERS},
        (ROOT / "lua" / "README.md").read_text(),
        {name: modules[name].read_text() for name in DECODING},
    )


Rule = Callable[[Said], Iterator[str]]


def heads(said: Said) -> Iterator[str]:
    """A head names the fields that its script reads and writes."""
    for name, found in said.texts().items():
        head = header(said.sources[name])
        for verb, claimed, real in (("reads", head.reads, found.reads), ("writes", head.writes, found.writes)):
            for field in claimed ^ real:
                yield f"{name}.lua {verb} {field}: {'only its head says so' if field in claimed else 'not in its head'}"


def fields(said: Said) -> Iterator[str]:
    """The layout has each field that a script uses, and no other."""
    used = {field for found in said.texts().values() for field in found.reads | found.writes} - {"all"}
    for name in used ^ said.fields:
        yield f"{name}: {'not in layout.py' if name in used else 'no script uses it'}"


def fields_in_readme(said: Said) -> Iterator[str]:
    """The README tells each field of the layout, and who writes it."""
    rows = {cells[0].strip("`").partition("<")[0]: cells[2] for cells in said.table("field")}
    texts = said.texts()
    for name in rows.keys() | said.fields:
        writers = " ".join(sorted(script for script, found in texts.items() if name in found.writes))
        if rows.get(name) != writers:
            yield f"README says of {name} that {rows.get(name)} write it, but {writers} do"


def indexes_in_readme(said: Said) -> Iterator[str]:
    rows = {cells[0].strip("`"): [set(cells[2].split()), set(cells[3].split())] for cells in said.table("index")}
    texts = said.texts()
    for name in rows.keys() | {*layout.INDEXES, "owners", "turns"}:
        fills = {script for script, found in texts.items() if name in found.fills}
        empties = {script for script, found in texts.items() if name in found.empties}
        if rows.get(name) != [fills, empties]:
            is_so = " | ".join(" ".join(sorted(names)) for names in (fills, empties))
            yield f"README says of {name} {rows.get(name)}; its row ends in: {is_so} |"


def states(said: Said) -> Iterator[str]:
    """`queued` is a QueueState, each of them is set by a script; indexes come in one order."""
    found = {state for each in said.texts().values() for state in each.queued}
    for state in found ^ set(layout.QueueState):
        yield f"{state} is {'set by a script and no QueueState' if state in found else 'set by no script'}"
    for name, source in said.sources.items():
        keys = [key for key in header(source).keys if key in layout.INDEXES]
        if keys != [index for index in layout.INDEXES if index in keys]:
            yield f"{name}.lua takes the indexes in another order"


def words_in_readme(said: Said) -> Iterator[str]:
    rows = {cells[0].strip("`"): cells[2] for cells in said.table("word")}
    used = {word for found in said.texts().values() for word in found.words} | {"WRONGTYPE"} | WORDS_OF_OTHERS
    for word in rows.keys() | used:
        meant = replies.refusal(ServerError(word, f"{word} 7"), "s")
        kind = type(meant).__name__
        if word not in used or rows.get(word) != kind:
            yield f"README says of {word} {rows.get(word)}, replies {kind}; used: {word in used}"


def keys_in_readme(said: Said) -> Iterator[str]:
    keys = Keys("ns", 64)
    name = next(f"session-{number}" for number in range(10_000) if keys.shard_of(f"session-{number}") == 7)
    session = keys.session(name)
    stored = [session.state, session.messages, session.originals, keys.record]
    stored += [quarantine_of(session) + b":<ms>:<key>", of_session(session).note]
    stored += [session.turned, session.live, session.waiters]
    stored += [keys.providers, keys.ticks, keys.processes, keys.dictionaries, keys.rate("<name>")]
    stored += [*session.shard.all_indexes, session.shard.fences]
    stored += [session.shard.active.removesuffix(b"active") + b"cleared:<nonce>"]
    expected = {key.decode().replace(name, "<session>") for key in stored}
    rows = {cells[0].strip("`") for cells in said.table("key")}
    for key in rows ^ expected:
        yield f"{key} is {'in README only' if key in rows else 'not in README'}"


def version(said: Said) -> Iterator[str]:
    """All code that parses or builds counters uses one layout version."""
    for name, source in said.sources.items():
        found = {int(number) for number in re.findall(r"'\^?v(\d+) ", source)}
        found |= {int(number) for number in re.findall(r"version ~= '(\d+)'", source)}
        if found - {said.version}:
            yield f"{name}.lua knows layout versions {found}, layout.py {said.version}"
    for told in re.findall(r"layout is version (\d+)", said.readme) or ["none"]:
        if told != str(said.version):
            yield f"README says layout version {told}, layout.py {said.version}"


def decoder_faults(said: Said) -> Iterator[str]:
    """Decoders take every field name from the layout. A key of a dict may be the name of a script's argument."""
    for module, source in said.modules.items():
        nodes = list(ast.walk(ast.parse(source)))
        keys = [key for node in nodes if isinstance(node, ast.Dict) for key in node.keys]
        for node in nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, bytes | str) and node not in keys:
                value = node.value.decode("latin-1") if isinstance(node.value, bytes) else node.value
                if value in said.fields:
                    yield f"{module}.py:{node.lineno} has a field name of its own, {value}"
        for name in re.findall(r"\blayout\.([A-Z_]+)\b", source):
            field = getattr(layout, name, None)
            if isinstance(field, bytes) and field.decode() not in said.fields:
                yield f"{module}.py uses {field.decode()}, which is not in layout.py"


RULES = (
    heads,
    fields,
    fields_in_readme,
    indexes_in_readme,
    states,
    words_in_readme,
    keys_in_readme,
    version,
    decoder_faults,
)


@pytest.mark.parametrize("rule", RULES)
def test_all_descriptions_agree(rule: Rule) -> None:
    assert list(rule(as_it_is())) == []


def script(name: str, old: str, new: str) -> Callable[[Said], Said]:
    def change(said: Said) -> Said:
        assert said.sources[name].count(old) >= 1
        return replace(said, sources=said.sources | {name: said.sources[name].replace(old, new)})

    return change


def readme(old: str, new: str) -> Callable[[Said], Said]:
    def change(said: Said) -> Said:
        assert said.readme.count(old) >= 1
        return replace(said, readme=said.readme.replace(old, new))

    return change


def field(name: str) -> Callable[[Said], Said]:
    """Return a change that adds a field to layout.py, or removes it."""
    return lambda said: replace(said, fields=said.fields ^ {name})


def module(name: str, line: str) -> Callable[[Said], Said]:
    return lambda said: replace(said, modules=said.modules | {name: f"{said.modules[name]}\n{line}\n"})


WRONG: list[tuple[Rule, Callable[[Said], Said], str]] = [
    (
        heads,
        script("edit", "change('edited', nonce)", "change('other', nonce)"),
        "edit.lua writes other: not in its head",
    ),
    (heads, script("edit", "writes counters ids_a", "writes counters plan ids_a"), "plan: only its head says so"),
    (heads, script("touch", "'HGET', state, 'counters'", "'HGET', state, 'plan'"), "touch.lua reads plan: not in"),
    (heads, script("extend", "FIELDS reads fence", "FIELDS reads"), "extend.lua reads fence: not in its head"),
    (heads, script("append", "change('resent', overtaking)", "change('again', 1)"), "append.lua writes again: not in"),
    (fields, script("edit", "change('edited'", "change('other'"), "other: not in layout.py"),
    (fields, field("unused"), "unused: no script uses it"),
    (fields, field("pruned"), "pruned: not in layout.py"),
    (fields_in_readme, readme("| `pruned` |", "| `other` |"), "README says of other"),
    (fields_in_readme, readme("| `pruned` |", "| `other` |"), "README says of pruned that None write it"),
    (
        fields_in_readme,
        script("edit", "change('edited'", "change('plan'"),
        "README says of plan that append append_turn",
    ),
    (
        indexes_in_readme,
        readme("append append_turn begin_turn edit set_policy sweep touch |", "append touch |"),
        "README says of active",
    ),
    (indexes_in_readme, script("extend", "'ZADD', leased", "'ZADD', dead"), "README says of dead"),
    (indexes_in_readme, readme("| `dead` |", "| `gone` |"), "README says of gone"),
    (states, script("requeue", "'queued', 'overdue'", "'queued', 'waiting'"), "waiting is set by a script and no"),
    (states, script("claim", "'queued', 'leased'", "'queued', 'overdue'"), "leased is set by no script"),
    (states, script("evict", "--   active\n--   overdue\n", "--   overdue\n--   active\n"), "in another order"),
    (words_in_readme, script("touch", "'CORRUPT", "'BROKEN"), "README says of BROKEN None"),
    (words_in_readme, readme("| `FULL` |", "| `FILLED` |"), "README says of FILLED"),
    (words_in_readme, readme("| UnsupportedFormat |", "| CorruptSession |"), "replies UnsupportedFormat"),
    (keys_in_readme, readme(":fences`", ":numbers`"), "rm:{ns:07tovh}:numbers is in README only"),
    (keys_in_readme, readme(":fences`", ":numbers`"), "rm:{ns:07tovh}:fences is not in README"),
    (version, script("touch", "format('v1 ", "format('v2 "), "touch.lua knows layout versions {1, 2}"),
    (version, script("touch", "version ~= '1'", "version ~= '3'"), "touch.lua knows layout versions {1, 3}"),
    (version, lambda said: replace(said, version=2), "README says layout version 1, layout.py 2"),
    (decoder_faults, module("replies", 'x = b"committed"'), "has a field name of its own, committed"),
    (decoder_faults, module("invariants", 'x = "dropped_seq"'), "has a field name of its own, dropped_seq"),
    (decoder_faults, field("fence"), "invariants.py uses fence, which is not in layout.py"),
]


@pytest.mark.parametrize(("rule", "change", "complaint"), WRONG)
def test_each_rule_can_fail(rule: Rule, change: Callable[[Said], Said], complaint: str) -> None:
    assert [found for found in rule(change(as_it_is())) if complaint in found]


@pytest.mark.parametrize("call", ["'HGET', state, named", "'HSET', state, named, 1", "'ZREM', somewhere, session"])
def test_an_unknown_field_or_index_is_an_error(call: str) -> None:
    with pytest.raises(AssertionError, match="which"):
        text("touch", f"redis.call({call})")


OUTCOMES = {"claim": layout.ClaimOutcome, "commit": layout.CommitOutcome, "release": layout.ReleaseOutcome}


@pytest.mark.parametrize("name", OUTCOMES)
def test_the_outcomes_match_the_script(name: str) -> None:
    source = scripts.load(name).source.decode()
    code = re.sub(r"--[^\n]*", "", source)
    listed = re.search(r"outcome:? \(?([a-z, ]+)", header(source).reply)
    assert listed
    assert set(listed[1].rstrip(", ").split(", ")) == set(OUTCOMES[name])
    given = set(re.findall(r"(?:return \{?|leave\(|and |or |outcome, [\w, ]+ = )'(\w+)'", code))
    assert given - {"overdue", "leased", "fence", "queued", "large_bytes"} <= set(OUTCOMES[name])
    assert all(f"'{outcome}'" in code for outcome in OUTCOMES[name])


def test_the_keys_of_a_shard_are_the_indexes_in_their_order() -> None:
    shard = Keys("ns", 1).shards()[0]
    names = [key.rpartition(b":")[2].decode() for key in shard.indexes]
    assert names == list(layout.INDEXES)
    assert shard.all_indexes == (*shard.indexes, shard.owners, shard.turns)
    assert ShardKeys.__slots__ == (*layout.INDEXES, "owners", "fences", "turns", "stops")


def test_the_ring_is_as_large_as_the_scripts_make_it() -> None:
    source = scripts.load("append").source.decode()
    assert f"-{ID_BYTES * append_ids.IDS_COUNT}, true)" in source
    assert f"at % {ID_BYTES} ~= 1" in source
    assert f"#ids == {1 + 5 * ID_BYTES} then" in source
