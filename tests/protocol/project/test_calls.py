"""The calls of a project: places of keys, groups, conflicts."""

from __future__ import annotations

from typing import Any

import pytest
from redis.crc import key_slot

from redismem.errors import Conflict
from redismem.protocol.keys import Keys
from redismem.protocol.project.calls import Batch, Group, ProjectCalls, Removal, Write, projects, register
from redismem.protocol.project.keys import ProjectKeys
from redismem.protocol.replies import refusal
from redismem.protocol.server_errors import ServerError

KEYS = ProjectKeys(Keys("shop", 8), "apollo")
CALLS = ProjectCalls(KEYS)
BATCH = Batch(
    sizes=[(KEYS.index("t", "needs:t-1"), 3)],
    checks=[("d-1", 7)],
    writes=[Write("d-2", 2, b"2 body", b"delta")],
    names=[("redis", "", "e-1")],
    additions=[(KEYS.index("d", "open"), 55, "d-2")],
    removals=[Removal(KEYS.index("d", "word:x"), "d-2", KEYS.index("d", "words"), "x")],
)


def test_a_change_names_keys_by_their_places() -> None:
    call = CALLS.change(BATCH)
    assert call.named is not None
    keys = [KEYS.items, KEYS.names, KEYS.journal, KEYS.changes, *call.named["more_keys"]]

    def place(key: bytes) -> int:
        return keys.index(key) + 1

    assert call.named["counts"] == "1 1 1 1 1 1"
    assert call.named["more"] == [
        *(place(KEYS.index("t", "needs:t-1")), 3),
        *("d-1", 7),
        *("d-2", 2, place(KEYS.versions("d-2")), b"2 body", b"delta"),
        *("redis", "", "e-1"),
        *(place(KEYS.index("d", "open")), 55, "d-2"),
        *(place(KEYS.index("d", "word:x")), "d-2", place(KEYS.index("d", "words")), "x"),
    ]
    assert len(set(keys)) == len(keys)
    assert len({key_slot(key) for key in keys}) == 1


def test_a_query_has_a_group_of_indexes_for_each_condition() -> None:
    groups = [Group((b"a", b"b")), Group((b"c",), (5, 9))]
    named = CALLS.find(b"order", groups, 50, ("77", "d-1")).named
    assert named is not None
    assert (named["request"], named["after_score"], named["after_id"]) == ("50 250 1500 400", "77", "d-1")
    assert (named["more_keys"], named["more"]) == ([b"a", b"b", b"c"], [2, "-", "-", 1, 5, 9])


def test_project_keys_differ_from_session_keys() -> None:
    assert KEYS.items == b"rm:{shop:@apollo}:items"
    numbered = ProjectKeys(Keys("shop", 8), "07")
    assert not numbered.items.startswith(b"rm:{shop:07")
    assert register(Keys("shop", 8), "apollo").commands == (("ZADD", b"rm:{shop}:projects", 0, "apollo"),)
    assert projects(Keys("shop", 8)).finish([[b"a", b"b"]]) == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("VERSION d-1 7", "another writer was faster: d-1 is at version 7 now"),
        ("VERSION d-1 0", "another writer was faster: d-1 is gone"),
        ("VERSION - 1", "another writer was faster: what depends on it has changed"),
        ("NAME e-1", "e-1 has this name"),
    ],
)
def test_a_conflict_names_its_cause(text: str, said: str) -> None:
    refused: Any = refusal(ServerError(text.split(maxsplit=1)[0], text), None)
    assert isinstance(refused, Conflict)
    assert str(refused) == said
