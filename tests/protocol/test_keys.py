"""Names: ids, tags, keys, tokens."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot
from support.json_values import session_ids
from support.quarantined import quarantine_of

from redismem.errors import InvalidMessage, InvalidSessionId
from redismem.protocol import ids
from redismem.protocol.ids import PROCESS, Sender, new_session_id, nonce
from redismem.protocol.keys import SHARD_KEYS, Keys

ALNUM = "ABCXYZabcxyz0189"
namespaces = st.builds(str.__add__, st.sampled_from(ALNUM), st.text(alphabet=ALNUM + "._-", max_size=63))

NOT_A_SESSION_ID = ["", " ", " a", "a ", "\u3000a", "a\n", "\na", "a\x00", "a\x7fb", "a\x85b", "a\u2028b", "a\ud800"]
NOT_A_NAMESPACE = [
    "",
    " a",
    "a b",
    "a\n",
    "a\x00",
    "-a",
    ".a",
    ":a",
    "@a",
    "_a",
    "a{b}",
    "a}b",
    "a*",
    "a/b",
    "ä",
    "а1",
    "٣",
]


def all_keys(keys: Keys, session_id: str) -> list[bytes]:
    found = keys.session(session_id)
    shard = found.shard
    own = [found.messages, found.state, found.originals, quarantine_of(found)]
    return [*own, shard.active, shard.overdue, shard.leased, shard.dead, shard.evictions, shard.fences]


@pytest.mark.parametrize(
    "session_id",
    [
        "a",
        "9",
        "user-42",
        "auth0|123",
        "user+tag@x.com",
        "a/b",
        "日本",
        "{a}",
        "a b",
        "-a",
        "👩‍💻",
        "A" * 256,
        "é" * 128,
    ],
)
def test_a_session_id_is_any_printable_text(session_id: str) -> None:
    assert Keys("shop", 64).session(session_id).session == session_id.encode()


@pytest.mark.parametrize("session_id", [*NOT_A_SESSION_ID, "a" * 257, "é" * 129, None, 5, b"a", ["a"]])
def test_any_other_session_id_is_refused_and_not_repeated(session_id: object) -> None:
    with pytest.raises(InvalidSessionId) as refused:
        Keys("shop", 64).session(session_id)  # type: ignore[arg-type]
    assert refused.value.session_id is None
    assert len(str(session_id)) <= 5 or str(session_id) not in str(refused.value)


@pytest.mark.parametrize("namespace", [*NOT_A_NAMESPACE, "a:b", "a@b", "a" * 65, "a\ud800", None, 5, b"a"])
def test_any_other_namespace_is_refused(namespace: object) -> None:
    with pytest.raises(InvalidSessionId):
        Keys(namespace, 64)  # type: ignore[arg-type]


@given(namespace=namespaces, session_id=session_ids, shards=st.sampled_from((1, 2, 7, 64, 64, 64, 300)))
def test_all_keys_of_a_session_and_its_shard_live_in_one_slot(namespace: str, session_id: str, shards: int) -> None:
    keys = Keys(namespace, shards)
    found = all_keys(keys, session_id)
    assert len({key_slot(key) for key in found}) == 1
    assert len(set(found)) == len(found)
    tag = f"rm:{{{namespace}:{keys.shard_of(session_id):02d}".encode()
    assert all(key.startswith(tag) and key[len(tag) + 4 :].startswith(b"}:") for key in found)
    assert keys.session(session_id).shard == keys.shards()[keys.shard_of(session_id)]


@given(session_id=session_ids.filter(lambda session_id: "{" not in session_id))
def test_the_shard_comes_from_the_clusters_hash(session_id: str) -> None:
    """This holds for ids without a hash tag: an id with one is hashed whole here, but in part by a cluster."""
    assert Keys("shop", 64).shard_of(session_id) == key_slot(session_id.encode(), 64)


@given(first=st.tuples(namespaces, session_ids), second=st.tuples(namespaces, session_ids))
def test_two_sessions_share_only_shard_keys_and_two_namespaces_no_key(
    first: tuple[str, str], second: tuple[str, str]
) -> None:
    mine, other = (set(all_keys(Keys(namespace, 8), session_id)) for namespace, session_id in (first, second))
    if first[0] != second[0]:
        assert not mine & other
        assert Keys(first[0], 8).record != Keys(second[0], 8).record
        assert Keys(first[0], 8).providers != Keys(second[0], 8).providers
    elif first[1] != second[1]:
        assert all(key.split(b"}:")[1] in {name.encode() for name in SHARD_KEYS} for key in mine & other)


def test_session_ids_are_uuids_of_version_7_that_sort_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    for now_ms in (0, 1, 1_700_000_000_000, 1_700_000_000_001, (1 << 48) - 1):
        monkeypatch.setattr(ids, "now_ms", lambda now_ms=now_ms: now_ms)
        made.append(new_session_id())
        number = uuid.UUID(made[-1])
        assert (number.version, number.variant) == (7, uuid.RFC_4122)
        assert number.int >> 80 == now_ms
        assert Keys("shop", 64).session(made[-1]).session_id == made[-1]
    assert made == sorted(made)


def test_new_session_ids_do_not_collide_within_a_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "now_ms", lambda: 1_700_000_000_000)
    assert len({new_session_id() for _ in range(20_000)}) == 20_000


@given(first=st.text(min_size=1, max_size=64), second=st.text(min_size=1, max_size=64))
def test_each_append_id_has_its_own_token(first: str, second: str) -> None:
    made, again, other = PROCESS.token(first), PROCESS.token(first), PROCESS.token(second)
    assert (made[:7], len(made)) == (again[:7], 30)
    assert made[22:] != again[22:], "these make an epoch unique"
    assert (made[:7] == other[:7]) == (first == second)


@pytest.mark.parametrize("append_id", ["", 5, b"x", "x" * 257, "é" * 129, ["x"]])
def test_an_invalid_append_id_is_refused(append_id: object) -> None:
    with pytest.raises(InvalidMessage):
        PROCESS.token(append_id)


def test_an_append_id_may_hold_any_text() -> None:
    assert PROCESS.token("\ud800 \n\x00")[:7] != PROCESS.token("\ud801 \n\x00")[:7]


def test_ids_are_unique_even_if_processes_seed_random() -> None:
    made = []
    for _ in range(2):
        random.seed(1)
        token = PROCESS.token(None)
        made += [token[:8], nonce(), new_session_id().encode()]
        made += [token[8:]]
    assert len(set(made)) == 8
    assert len(made[1]) == 16
    int(made[1], 16)


def test_a_child_draws_other_tokens_than_its_parent() -> None:
    sender, gone = Sender(), Sender()
    names = [each.token(None)[10:16] for each in (sender, gone)]  # fills the stock of tokens
    del gone
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.write(writer, b"".join(each.token(None) for each in (sender, Sender()) for _ in range(100)))
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        theirs = pipe.read()
    os.waitpid(child, 0)
    ours = b"".join(each.token(None) for each in (sender, Sender()) for _ in range(100))
    tokens = [text[at : at + 30] for text in (ours, theirs) for at in range(0, 6000, 30)]
    assert len({token[:7] for token in tokens}) == len({token[10:22] for token in tokens}) == 400
    assert len({token[10:16] for token in tokens}) == 4, "each names its sender"
    assert [ours[10:16], ours[3010:3016]] == names, "the name of one that is gone is used again"


def test_each_memory_of_a_process_has_a_name_and_a_byte_of_its_own() -> None:
    senders = [Sender() for _ in range(100)]
    tokens = [each.token("my-id") for each in senders]
    assert len({token[10:16] for token in tokens}) == len({token[7] for token in tokens}) == 100
    assert all(token[7] == token[10] for token in tokens)
    for token in tokens:
        again = ids.renew(token)
        assert (again[:16], again[22:]) == (token[:16], token[22:])
        assert again[16:22] > token[16:22]
    names = {token[10:16] for token in tokens}
    del senders
    assert {Sender().token(None)[10:16] for _ in range(100)} <= names


class Alternating:
    """Numbers for two threads that draw at the same time: each of them waits for the other one, if it comes."""

    def __init__(self) -> None:
        self._numbers, self._both = itertools.count(1), threading.Barrier(2, timeout=0.2)

    def __next__(self) -> int:
        with contextlib.suppress(threading.BrokenBarrierError):
            self._both.wait()
        return next(self._numbers)


def test_two_threads_never_put_sendings_out_of_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """A retry draws its number after its first attempt, and must overtake it."""
    monkeypatch.setattr(ids, "_TOKENS_COUNT", 8)
    monkeypatch.setattr(ids, "_numbers", Alternating())
    sender = Sender()
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: sender.sending(), range(2))
    left = [token[ids.SENDING_AT :][: ids.SENDING_BYTES] for token in sender._tokens]
    assert left == sorted(left)
    assert max(first, second) < min(left)
