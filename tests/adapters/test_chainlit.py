"""Chainlit's data layer: the answers of its own layer over SQL. Chainlit needs an environment of its own."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

pytest.importorskip("chainlit")

from chainlit.context import ChainlitContext, context_var
from chainlit.data.sql_alchemy import SQLAlchemyDataLayer
from chainlit.data.storage_clients.base import BaseStorageClient
from chainlit.element import Text
from chainlit.session import HTTPSession
from chainlit.step import StepDict
from chainlit.types import Feedback, Pagination, ThreadFilter
from chainlit.user import User
from support.clock import T0, Clock
from support.proxy import Proxy
from support.stores import PATIENCE, Store, short_deadlines

from redismem import InvalidRecord, InvalidSessionId, InvalidSettings, Memory, OwnerMismatch, Settings, StoreUnavailable
from redismem.adapters.chainlit import DataLayer

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

TABLES = """
CREATE TABLE users ("id" TEXT PRIMARY KEY, "identifier" TEXT NOT NULL UNIQUE, "metadata" JSONB, "createdAt" TEXT);
CREATE TABLE threads ("id" TEXT PRIMARY KEY, "createdAt" TEXT, "name" TEXT, "userId" TEXT, "userIdentifier" TEXT,
    "tags" TEXT, "metadata" JSONB);
CREATE TABLE steps ("id" TEXT PRIMARY KEY, "name" TEXT, "type" TEXT, "threadId" TEXT, "parentId" TEXT,
    "streaming" BOOLEAN, "waitForAnswer" BOOLEAN, "isError" BOOLEAN, "metadata" JSONB, "tags" TEXT, "input" TEXT,
    "output" TEXT, "createdAt" TEXT, "start" TEXT, "end" TEXT, "generation" JSONB, "showInput" TEXT, "language" TEXT);
CREATE TABLE elements ("id" TEXT PRIMARY KEY, "threadId" TEXT, "type" TEXT, "url" TEXT, "chainlitKey" TEXT,
    "name" TEXT, "display" TEXT, "objectKey" TEXT, "size" TEXT, "page" INT, "language" TEXT, "forId" TEXT, "mime" TEXT,
    "props" JSONB DEFAULT '{}', "autoPlay" BOOLEAN, "playerConfig" JSONB);
CREATE TABLE feedbacks ("id" TEXT PRIMARY KEY, "forId" TEXT, "threadId" TEXT, "value" INT, "comment" TEXT)
"""
times = itertools.count(1)


def enter_session(user: User | None, thread_id: str = "") -> None:
    context_var.set(ChainlitContext(HTTPSession("s", "webapp", thread_id, user, None, {})))


class Files(BaseStorageClient):
    """A storage client in memory."""

    def __init__(self) -> None:
        self.files: dict[str, bytes | str] = {}

    async def upload_file(self, object_key: str, data: bytes | str, *_: Any, **__: Any) -> dict[str, Any]:
        self.files[object_key] = data
        return {"object_key": object_key, "url": f"https://files/{object_key}"}

    async def delete_file(self, object_key: str) -> bool:
        return self.files.pop(object_key, None) is not None

    async def get_read_url(self, object_key: str) -> str:
        return f"https://files/{object_key}?signed"

    async def close(self) -> None: ...


@pytest.fixture(autouse=True)
async def http_context() -> None:
    """Chainlit's session without a user, as in a request."""
    enter_session(None)


@pytest.fixture
def files() -> Files:
    return Files()


@pytest.fixture(params=["theirs", "ours"])
async def layer(request: pytest.FixtureRequest, memory: Memory, tmp_path: Path, files: Files) -> AsyncIterator[Any]:
    if request.param == "ours":
        yield DataLayer(memory=memory, storage_provider=files)
        return
    theirs = SQLAlchemyDataLayer(f"sqlite+aiosqlite:///{tmp_path}/chainlit.db", storage_provider=files)
    for statement in TABLES.split(";"):
        await theirs.execute_sql(statement, {})
    yield theirs
    await theirs.engine.dispose()


def make_step(thread: str, id: str | None = None, **fields: Any) -> StepDict:
    at = f"2026-05-01T10:00:00.{next(times):06d}Z"
    given: dict[str, Any] = {"name": "ann", "type": "user_message", "output": "hello", "createdAt": at, "metadata": {}}
    return StepDict(**{"id": id or str(uuid4()), "threadId": thread, "streaming": False, **given, **fields})


async def begin(layer: Any, *identifiers: str) -> list[str]:
    """Create users, and return their ids."""
    return [(await layer.create_user(User(identifier=each, metadata={"role": each}))).id for each in identifiers]


async def list_ids(layer: Any, user: str, first: int = 20, cursor: str | None = None, **filters: Any) -> Any:
    page = await layer.list_threads(Pagination(first=first, cursor=cursor), ThreadFilter(userId=user, **filters))
    return [thread["id"] for thread in page.data], page.pageInfo.to_dict()


async def test_users_are_created_once_and_their_metadata_is_renewed(layer: Any) -> None:
    assert await layer.get_user("ann") is None
    first = await layer.create_user(User(identifier="ann", metadata={"a": 1}))
    again = await layer.create_user(User(identifier="ann", metadata={"b": [2]}))
    assert (first.id, first.createdAt, first.metadata) == (again.id, again.createdAt, {"a": 1})
    assert (await layer.get_user("ann")).metadata == {"b": [2]}


async def test_threads_are_changed_in_parts(layer: Any) -> None:
    [ann] = await begin(layer, "ann")
    assert await layer.get_thread("t") is None
    with pytest.raises(ValueError, match="Author not found"):
        await layer.get_thread_author("t")
    await layer.update_thread("t", name="First", user_id=ann, metadata={"a": 1, "b": {"c": 2}})
    await layer.update_thread("t", metadata={"a": None, "d": 4})
    await layer.update_thread("t")
    thread = await layer.get_thread("t")
    assert (thread["name"], thread["userId"], thread["userIdentifier"]) == ("First", ann, "ann")
    metadata = thread["metadata"]  # SQLite returns JSON as a text
    assert (json.loads(metadata) if isinstance(metadata, str) else metadata) == {"b": {"c": 2}, "d": 4}
    assert thread["steps"] == thread["elements"] == []
    await layer.update_thread("t", metadata={"name": "Second"})
    assert (await layer.get_thread("t"))["name"] == "Second"
    await layer.update_thread("t", name="Third")
    assert (await layer.get_thread("t"))["name"] == "Third"
    assert (await layer.get_thread("t"))["createdAt"] == thread["createdAt"]
    assert await layer.get_thread_author("t") == "ann"
    await layer.delete_thread("t")
    await layer.delete_thread("t")
    assert await layer.get_thread("t") is None
    with pytest.raises(ValueError, match="Author not found"):
        await layer.get_thread_author("t")


async def test_steps_are_shown_in_order_with_the_input_that_may_be_seen(layer: Any) -> None:
    [ann] = await begin(layer, "ann")
    await layer.update_thread("t", user_id=ann)
    first, second = make_step("t", "a", output="öäü"), make_step("t", "b", type="tool", parentId="a", input="secret")
    third = make_step("t", "c", input="query", showInput="json", isError=True, generation={"x": 1}, language="sql")
    for step in (third, first, second):
        await layer.create_step(StepDict(**step))
    await layer.update_step(StepDict(id="a", threadId="t", name="bob", output="new", metadata={"m": 1}, isError=None))
    steps = (await layer.get_thread("t"))["steps"]
    by_id = {step["id"]: step for step in steps}
    assert list(by_id) == ["a", "b", "c"]
    assert (by_id["a"]["name"], by_id["a"]["output"], by_id["a"]["type"]) == ("bob", "new", "user_message")
    assert by_id["a"]["createdAt"] == first["createdAt"]
    assert (by_id["b"]["input"], by_id["b"]["parentId"], by_id["c"]["input"]) == ("", "a", "query")
    assert (by_id["c"]["isError"], by_id["c"]["showInput"], by_id["c"]["language"]) == (True, "json", "sql")
    assert all(step["feedback"] is None for step in steps)
    await layer.delete_step("b")
    await layer.delete_step("unknown")
    assert sorted(step["id"] for step in (await layer.get_thread("t"))["steps"]) == ["a", "c"]
    await layer.create_step(make_step("begun", "z"))  # a step begins its thread
    assert [step["id"] for step in (await layer.get_thread("begun"))["steps"]] == ["z"]


async def test_feedback_is_that_of_its_step(layer: Any) -> None:
    [ann] = await begin(layer, "ann")
    await layer.update_thread("t", user_id=ann)
    for id in ("a", "b"):
        await layer.create_step(make_step("t", id))
    given = await layer.upsert_feedback(Feedback(forId="a", value=1, threadId="t", comment="good"))
    assert await layer.upsert_feedback(Feedback(forId="a", value=0, threadId="t", id=given)) == given
    own = await layer.upsert_feedback(Feedback(forId="b", value=1, threadId="t", id="own"))
    assert own == "own"
    feedback = {step["id"]: step["feedback"] for step in (await layer.get_thread("t"))["steps"]}
    assert (feedback["a"]["id"], feedback["a"]["value"], feedback["b"]["value"]) == (given, 0, 1)
    assert (await list_ids(layer, ann, feedback=1))[0] == ["t"]
    assert await layer.delete_feedback("own") is True
    assert await layer.delete_feedback("own") is True
    feedback = {step["id"]: step["feedback"] for step in (await layer.get_thread("t"))["steps"]}
    assert (feedback["a"]["id"], feedback["b"]) == (given, None)
    assert (await list_ids(layer, ann, feedback=1))[0] == []
    await layer.delete_step("a")
    await layer.create_step(make_step("t", "a"))
    assert [step["feedback"] for step in (await layer.get_thread("t"))["steps"]] == [None, None]


async def test_threads_of_a_user_are_listed_by_pages_and_searched(layer: Any) -> None:
    ann, bob = await begin(layer, "ann", "bob")
    for at in range(5):
        await layer.update_thread(f"t{at}", name=f"Thread {at}", user_id=ann)
        await layer.create_step(make_step(f"t{at}", f"s{at}", output=f"The Hinge {at}" if at % 2 else "Nothing"))
    await layer.update_thread("empty", user_id=ann)
    await layer.update_thread("bobs", user_id=bob)
    await layer.create_step(make_step("bobs", "x", output="The hinge of bob"))
    assert await list_ids(layer, ann, 2) == (
        ["t4", "t3"],
        {"hasNextPage": True, "startCursor": "t4", "endCursor": "t3"},
    )
    assert (await list_ids(layer, ann, 3, "t3"))[0] == ["t2", "t1", "t0"]
    last = await list_ids(layer, ann, 3, "t0")
    assert last == (["empty"], {"hasNextPage": False, "startCursor": "empty", "endCursor": "empty"})
    assert (await list_ids(layer, ann, 3, "empty"))[1] == {"hasNextPage": False, "startCursor": None, "endCursor": None}
    assert (await list_ids(layer, ann, 2, "unknown"))[0] == ["t4", "t3"]
    assert (await list_ids(layer, ann, search="HINGE"))[0] == ["t3", "t1"]
    assert (await list_ids(layer, ann, search="of bob"))[0] == []
    assert (await list_ids(layer, bob))[0] == ["bobs"]
    assert (await list_ids(layer, "nobody"))[0] == []
    with pytest.raises(ValueError, match="userId is required"):
        await layer.list_threads(Pagination(first=1), ThreadFilter())
    await layer.delete_thread("t3")
    assert (await list_ids(layer, ann, search="hinge"))[0] == ["t1"]


async def test_favorites_are_found_in_all_threads_of_the_user_alone(layer: Any) -> None:
    ann, bob = await begin(layer, "ann", "bob")
    for thread, user in (("t1", ann), ("t2", ann), ("t3", bob)):
        await layer.update_thread(thread, user_id=user)
        for id in ("a", "b"):
            step = make_step(thread, f"{thread}{id}")
            await layer.create_step(StepDict(**step))
            await layer.set_step_favorite(step, id == "a")
    assert sorted(step["id"] for step in await layer.get_favorite_steps(ann)) == ["t1a", "t2a"]
    await layer.set_step_favorite(make_step("t1", "t1a"), False)
    assert [step["id"] for step in await layer.get_favorite_steps(ann)] == ["t2a"]


async def test_elements_and_their_files_go_with_their_steps_and_threads(layer: Any, files: Files) -> None:
    [ann] = await begin(layer, "ann")
    await layer.update_thread("t", user_id=ann)
    for id in ("a", "b", "c"):
        await layer.create_step(make_step("t", id))
        await layer.create_element(Text(id=f"e{id}", thread_id="t", name="x.txt", content=f"of {id}", for_id=id))
    await layer.create_element(Text(id="none", thread_id="t", name="x.txt", content="of nothing"))
    assert sorted(files.files.values()) == ["of a", "of b", "of c"]
    element = await layer.get_element("t", "ea")
    assert (element["name"], element["forId"], element["type"]) == ("x.txt", "a", "text")
    assert await layer.get_element("t", "none") is None
    assert await layer.get_element("other", "ea") is None
    shown = {each["id"]: each["url"] for each in (await layer.get_thread("t"))["elements"]}
    assert sorted(shown) == ["ea", "eb", "ec"]
    assert shown["ea"] == f"https://files/{ann}/ea/x.txt?signed"
    await layer.delete_element("ea", "t")
    await layer.delete_element("eb")
    await layer.delete_element("unknown")
    assert [each["id"] for each in (await layer.get_thread("t"))["elements"]] == ["ec"]
    assert list(files.files.values()) == ["of c"]
    await layer.delete_thread("t")
    assert files.files == {}


async def test_an_element_without_a_place_for_its_content_is_not_kept(memory: Memory, files: Files) -> None:
    layer = DataLayer(memory=memory)
    await layer.create_step(make_step("t", "a"))
    await layer.create_element(Text(id="e1", thread_id="t", content="x", for_id="a"))
    await layer.create_element(Text(id="e2", thread_id="t", url="https://else/where", for_id="a"))
    thread = await layer.get_thread("t")
    assert thread is not None
    assert [(each["id"], each["url"]) for each in thread["elements"] or ()] == [("e2", "https://else/where")]
    own = DataLayer(memory=memory, storage_provider=files)
    await own.create_element(Text(id="e3", thread_id="t", content="of a step", for_id="a"))
    await own.delete_step("a")  # an own file goes with its step
    assert files.files == {}


async def test_a_thread_belongs_to_the_user_of_the_session_and_to_no_other(memory: Memory) -> None:
    layer = DataLayer(memory=memory)
    enter_session(User("ann"), "t")
    await layer.create_step(make_step("t", "a", output="my secret"))
    assert await layer.get_thread_author("t") == "ann"
    with pytest.raises(OwnerMismatch):
        await layer.update_thread("t", user_id="bob")
    assert (await list_ids(layer, "bob", search="secret"))[0] == []
    await layer.create_user(User("ann"))
    await layer.create_user(User("bob"))
    await layer.update_thread("bobs", user_id="bob")
    assert (await memory.forget(owner="ann")).record_count == 2
    assert await layer.get_thread("t") is None
    assert await layer.get_user("ann") is None
    assert (await list_ids(layer, "bob"))[0] == ["bobs"]


async def test_tasks_of_a_step_are_made_in_their_order_and_those_of_processes_are_kept(
    store: Store, namespace: str
) -> None:
    async with store.memory(namespace) as first, store.memory(namespace) as second:
        layers = [DataLayer(memory=memory) for memory in (first, second)]
        tasks = []
        for at in range(40):
            layer, step = layers[at % 2], make_step("t", f"s{at}", output="", streaming=True)
            tasks += [asyncio.create_task(layer.create_step(StepDict(**step)))]
            tasks += [
                asyncio.create_task(layer.update_step(StepDict(**{**step, "output": f"{at}", "streaming": False})))
            ]
            tasks += [asyncio.create_task(layer.update_thread("t", metadata={f"k{at}": at}))]
        await asyncio.gather(*tasks)
        thread = await layers[0].get_thread("t")
        assert thread is not None
        assert {step["id"]: (step["output"], step["streaming"]) for step in thread["steps"]} == {
            f"s{at}": (f"{at}", False) for at in range(40)
        }
        assert thread["metadata"] == {f"k{at}": at for at in range(40)}
        for at in range(40):
            await layers[at % 2].delete_step(f"s{at}")
        thread = await layers[1].get_thread("t")
        assert thread is not None
        assert thread["steps"] == []


async def test_what_is_deleted_is_nowhere(memory: Memory, raw: Any, namespace: str) -> None:
    layer = DataLayer(memory=memory)
    await layer.create_step(make_step("t", "a", output="canary", input="canary"))
    await layer.upsert_feedback(Feedback(forId="a", value=1, comment="canary"))
    await layer.create_element(Text(id="e", thread_id="t", url="https://canary", for_id="a", name="canary"))
    await layer.delete_step("a")
    for key in [key async for key in raw.scan_iter(f"*{namespace}*")]:
        assert b"canary" not in (await raw.dump(key) or b"")


async def test_threads_expire_after_their_last_use(store: Store, namespace: str, raw: Any, clock: Clock) -> None:
    clock.now_ms = T0
    async with store.memory(namespace) as memory:
        layer = DataLayer(memory=memory, ttl=60)
        await layer.create_user(User("ann"))
        await layer.update_thread("t", user_id="ann")
        for use in (layer.create_step(make_step("t", "a")), layer.get_thread("t"), layer.update_thread("t", name="n")):
            clock.now_ms += 1_000
            await use
            [key] = [key async for key in raw.scan_iter(f"*{namespace}:*:record:chainlit:t")]
            assert await raw.pexpiretime(key) == clock.now_ms + 60_000
        clock.now_ms += 1_000
        await list_ids(layer, "ann", search="hello")  # a list is no use
        assert await raw.pexpiretime(key) == clock.now_ms - 1_000 + 60_000


async def test_an_outage_is_an_error_and_no_missing_thread(proxy: Proxy, namespace: str) -> None:
    settings = Settings(**PATIENCE)
    async with Memory.connect(proxy.url, namespace=namespace, settings=settings, fallback=True) as memory:
        layer = DataLayer(memory=memory)
        await layer.create_step(make_step("t", "a"))
        await proxy.refuse()
        with short_deadlines(memory):
            for call in (layer.get_thread("t"), layer.get_user("ann"), layer.create_step(make_step("t", "b"))):
                with pytest.raises(StoreUnavailable):
                    await call
        await proxy.accept_again()


async def test_invalid_arguments_are_refused(memory: Memory) -> None:
    given: Any
    for given, error in (
        ({"memory": memory, "ttl": 0}, InvalidRecord),
        ({"memory": memory, "key_prefix": None}, InvalidSessionId),
        ({"memory": memory, "url": "memory://"}, InvalidSettings),
    ):
        with pytest.raises(error):
            DataLayer(**given)
    async with DataLayer("memory://") as own:
        assert await own.build_debug_url() == ""
        with pytest.raises(ValueError, match="no step"):
            await own.upsert_feedback(Feedback(forId="a", value=1))
        with pytest.raises(ValueError, match="no step"):
            await own.upsert_feedback(Feedback(forId="a", value=1, threadId="t"))
        with pytest.raises(InvalidSessionId):
            await own.get_user("")
