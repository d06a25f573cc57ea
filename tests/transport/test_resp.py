"""Bytes to replies: cut anywhere, in order or out of step. No socket."""

from __future__ import annotations

import asyncio
from typing import Any

import hiredis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redismem.protocol.call import Command
from redismem.protocol.server_errors import ConnectionLost, ServerError
from redismem.transport import resp
from redismem.transport.lane import connection as connection_module
from redismem.transport.lane.connection import Connection, PendingCall

CONVERSATION: list[tuple[list[Command], bytes, Any]] = [
    ([("GET", "a")], b"$5\r\n\r\n+OK\r\n", [b"\r\n+OK"]),
    (
        [("HGETALL", "a"), ("LRANGE", "b", 0, -1)],
        b"+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n*0\r\n*1\r\n$1\r\nx\r\n",
        [[], [b"x"]],
    ),
    ([("GET", "a"), ("GET", "b")], b"+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n$-1\r\n-OOM no\r\n", [None, "OOM"]),
    ([("GET", "a"), ("GET", "b")], b"+OK\r\n-MOVED 1 h:1\r\n+QUEUED\r\n-EXECABORT previous\r\n", "MOVED"),
    ([("INCR", "a")], b":12\r\n", [12]),
]


def plain(outcome: Any) -> Any:
    """Return error replies as their words."""
    if isinstance(outcome, list):
        return [plain(reply) for reply in outcome]
    return outcome.word if isinstance(outcome, ServerError) else outcome


def feed(loop: asyncio.AbstractEventLoop, pieces: list[bytes]) -> tuple[list[Any], Connection]:
    """Feed the pieces to a connection with these pending calls, and return the outcomes."""
    connection = Connection(loop, lambda: None, lambda _: None, lambda _: None)
    calls = []
    for commands, _, _ in CONVERSATION:
        several = len(commands) > 1
        content = resp.encode_transaction(commands) if several else resp.encode_independent(commands)
        count = len(commands) + 2 * several
        call = PendingCall(content, count, several, loop.create_future(), 0, 0)
        connection.send(call, 0)
        calls.append(call)
    for piece in pieces:
        connection.data_received(piece)
    return [plain(call.future.exception() or call.future.result()) for call in calls if call.future.done()], connection


async def test_replies_may_be_cut_at_every_byte() -> None:
    loop = asyncio.get_running_loop()
    answer = b"".join(reply for _, reply, _ in CONVERSATION)
    expected = [outcome for _, _, outcome in CONVERSATION]
    for cut in range(len(answer) + 1):
        outcomes, connection = feed(loop, [answer[:cut], answer[cut:]])
        assert outcomes == expected, cut
        assert (len(connection.sent), connection.sent_bytes) == (0, 0)
    outcomes, _ = feed(loop, [answer[at : at + 1] for at in range(len(answer))])
    assert outcomes == expected


@pytest.mark.parametrize("piece_bytes", [*range(1, 48), 300])
async def test_a_reader_may_be_fed_in_pieces_of_any_length(monkeypatch: pytest.MonkeyPatch, piece_bytes: int) -> None:
    monkeypatch.setattr(connection_module, "_FEED_BYTES", piece_bytes)
    answer = b"".join(reply for _, reply, _ in CONVERSATION)
    outcomes, connection = feed(asyncio.get_running_loop(), [answer])
    assert outcomes == [outcome for _, _, outcome in CONVERSATION]
    assert (len(connection.sent), connection.sent_bytes) == (0, 0)


words = st.one_of(st.binary(max_size=300), st.text(st.characters(codec="utf-8"), max_size=40), st.integers())


@given(
    keys=st.lists(st.binary(max_size=60), max_size=9),
    arguments=st.lists(words, max_size=12),
    reads=st.lists(st.tuples(st.just("LRANGE"), st.binary(max_size=20), st.integers()), max_size=3),
)
def test_cached_encodings_equal_those_of_hiredis(keys: list[bytes], arguments: list[Any], reads: list[Command]) -> None:
    script: Command = ("EVALSHA", "f" * 40, len(keys), *keys, *arguments)
    commands = [script, *reads]
    packed = [hiredis.pack_command(command) for command in [("MULTI",), *commands, ("EXEC",)]]  # type: ignore[arg-type]
    for _ in range(2):
        assert resp.encode_transaction(commands) == b"".join(packed)
        assert resp.encode_independent(commands) == b"".join(packed[1:-1])


async def test_an_incomplete_reply_reaches_no_call() -> None:
    loop = asyncio.get_running_loop()
    answer = b"".join(reply for _, reply, _ in CONVERSATION)
    expected = [outcome for _, _, outcome in CONVERSATION]
    for cut in range(len(answer)):
        outcomes, connection = feed(loop, [answer[:cut]])
        assert outcomes == expected[: len(outcomes)]
        unanswered = list(connection.sent)
        connection.connection_lost(None)
        assert len(outcomes) + len(unanswered) == len(expected)
        assert all(isinstance(call.future.exception(), ConnectionLost) for call in unanswered)


@pytest.mark.parametrize("shift", [b"+OK\r\n", b":1\r\n", b"+QUEUED\r\n", b"*0\r\n", b"$1\r\nx\r\n"])
async def test_a_transaction_out_of_step_ends_the_connection(shift: bytes) -> None:
    """With one reply too many the affected call may be any, but the next transaction notices."""
    loop = asyncio.get_running_loop()
    found, connection = feed(loop, [shift, *(reply for _, reply, _ in CONVERSATION)])
    assert connection.lost_reason == "OutOfStep"
    assert len(found) == len(CONVERSATION)
    assert isinstance(found[1], ConnectionLost)


@pytest.mark.parametrize("send", [resp.check_replies, resp.unpack_transaction])
def test_a_server_with_too_many_clients_has_run_nothing(send: Any) -> None:
    crowded = resp.server_error("ERR max number of clients reached")
    outcome = send([crowded])
    assert isinstance(outcome, ConnectionLost)
    assert not outcome.sent


@pytest.mark.parametrize(
    ("texts", "word"),
    [
        (["ERR unknown command 'X', with args beginning with: 'my' 'text'", "EXECABORT previous errors"], "ERR"),
        (["EXECABORT Transaction discarded because of: NOREPLICAS Not enough good replicas."], "NOREPLICAS"),
        (["EXECABORT Transaction discarded because of previous errors."], "EXECABORT"),
        (["NOAUTH Authentication required."] * 3, "NOAUTH"),
    ],
)
def test_a_transaction_raises_the_error_that_stopped_it(texts: list[str], word: str) -> None:
    outcome = resp.unpack_transaction([b"OK", b"QUEUED", *map(resp.server_error, texts)])
    assert isinstance(outcome, ServerError)
    assert outcome.word == word
    assert "my" not in outcome.text


@pytest.mark.parametrize(
    "replies",
    [
        [b"QUEUED", b"QUEUED", b"QUEUED", [1, 2]],
        [b"OK", b"QUEUED", 7, [1, 2]],
        [b"OK", b"QUEUED", b"QUEUED", [1]],
        [b"OK", b"QUEUED", b"QUEUED", None],
        [[1, 2], b"OK", b"QUEUED", b"QUEUED"],
    ],
)
def test_a_reply_to_another_transaction_is_noticed(replies: list[Any]) -> None:
    with pytest.raises(resp.OutOfStep):
        resp.unpack_transaction(replies)


class Recorder(asyncio.Transport):
    """Records each write of a connection."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.pieces.append(bytes(data))


@pytest.mark.parametrize("size", [1, 500, 3_000, 8_192, 20_000])
async def test_many_calls_are_written_in_order_in_pieces(size: int) -> None:
    loop = asyncio.get_running_loop()
    connection, socket = Connection(loop, lambda: None, lambda _: None, lambda _: None), Recorder()
    connection.connection_made(socket)
    contents = [bytes([97 + number]) * size for number in range(20)]
    for content in contents:
        connection.send(PendingCall(content, 1, False, loop.create_future(), 0, 0), 0)
    at_once = list(socket.pieces)
    assert at_once[0] == contents[0], "the first need not wait for others"
    assert all(8_192 <= len(piece) < 8_192 + size for piece in at_once[1:])
    assert sum(map(len, contents)) - sum(map(len, at_once)) < 8_192
    await asyncio.sleep(0)
    assert b"".join(socket.pieces) == b"".join(contents)
    assert len(socket.pieces) <= len(at_once) + 1
    assert connection.sent_bytes == 20 * size
