"""Commands and keys that the ACL of a Redis user forbids: the error names the command, and the doctor names the fix."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from protocol.test_acl import TURNS, user
from support.redis_server import ON_THE_PATH, REDIS_8, RedisServer, binary_of

from redismem import NotAllowed, RedismemError, Settings, StoreUnavailable, Unconfirmed
from redismem.blocking import memory as blocking
from redismem.cli import main
from redismem.protocol import permissions, replies, scripts
from redismem.protocol.server_errors import ServerError

SETTINGS = Settings(threshold=3, recent_limit=1, keep_originals=True, confirm_timeout_s=0.001)
DATA = permissions.COMMANDS[permissions.COMMANDS.index("client|setname") + 1 :]
"""The commands that take a key."""


@pytest.fixture(scope="module", params=[ON_THE_PATH, REDIS_8])
def redis_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A server of each kind, because their error texts differ."""
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.binary = binary_of(request.param)
    yield server.start()
    server.stop()


@pytest.fixture
def admin(redis_server: Any, namespace: str) -> Iterator[Any]:
    """A user `app` with the permissions that the doctor lists, and an admin client that can change them."""
    with redis.Redis(port=redis_server.port) as admin:
        line = f"ACL SETUSER app reset on >pw {permissions.acl(namespace)}"
        admin.execute_command(*line.split())
        yield admin
        admin.execute_command("ACL", "DELUSER", "app")


Open = Callable[[], blocking.Memory]
LISTENING = ("ssubscribe", "sunsubscribe", "spublish")


@pytest.fixture(params=["lane", "redis-py"])
def open_memory(request: pytest.FixtureRequest, redis_server: Any, namespace: str) -> Iterator[Open]:
    clients: list[redis.Redis] = []

    def open_one() -> blocking.Memory:
        if request.param == "lane":
            url = str(redis_server.url).replace("redis://", "redis://app:pw@")
            return blocking.Memory.connect(url, namespace=namespace, settings=SETTINGS)
        clients.append(redis.Redis(port=redis_server.port, username="app", password="pw"))
        return blocking.Memory.connect(client=clients[-1], namespace=namespace, settings=SETTINGS)

    yield open_one
    for client in clients:
        client.close()


def append_confirmed(session: blocking.Session) -> None:
    with contextlib.suppress(Unconfirmed):  # there are no replicas, but Redis was asked
        session.append(user(4), confirm=1)


def refusals(memory: blocking.Memory) -> list[NotAllowed]:
    """Return the NotAllowed errors of a user that runs every operation once. Any other error is raised."""
    session = memory.session("a")
    everything: list[Callable[[], Any]] = [
        memory.ping,
        memory.count,
        memory.sessions,
        lambda: memory.take("caller", 1),
        lambda: session.append(*map(user, range(4)), merge={"a": 1}, id="first"),
        lambda: session.append_and_read(user(3), merge={"b": 2}, waiting="size", id="second"),
        lambda: session.append(user(3), waiting=None, id="second"),
        lambda: append_confirmed(memory.session("confirmed")),
        *(lambda turn=turn: turn(session) for turn, _ in TURNS),
    ]
    errors = []
    for each in everything:
        try:
            each()
        except NotAllowed as refused:
            errors.append(refused)
        except RedismemError:
            # The next call shows what a refused call left half done.
            if not errors:
                raise
    return errors


def test_with_the_documented_acl_nothing_is_refused(open_memory: Open, admin: Any) -> None:
    admin.execute_command("ACL", "LOG", "RESET")
    memory = open_memory()
    assert refusals(memory) == []
    memory.close()
    # redis-py sends newer servers its name, and ignores a refusal.
    log = map(str, admin.execute_command("ACL", "LOG"))
    assert [entry for entry in log if "app" in entry and "client|setinfo" not in entry] == []


REFUSED_ON_THE_WAY = [*DATA, "evalsha", "multi", "ping", "time"]
# Used only by workers, projects, `check`, the doctor and quarantine, or checked by the server after its own refusal.
ELSEWHERE = {"hlen", "hkeys", "zscore", "zcard", "zrange", "zscan", "get", "type", "rename", "pexpire", "pttl"}
ELSEWHERE |= {"zrangebyscore", "pexpiretime", "hsetnx", "incr", "del", "exists", "zrem", "hdel", "ltrim"}
ELSEWHERE |= {"hscan", "hstrlen", "zrevrank", "persist"}
ELSEWHERE |= {"lrem"}  # `forget` needs it only if two gaps become one
ELSEWHERE |= {"unlink", "zmscore"}  # for records
ELSEWHERE |= {"hexists"}  # for scripts of workers
ELSEWHERE |= {"setrange", "strlen", "getrange"}  # for turns


# Each command once; and one of each kind per server and transport, because their errors differ.
OF_EACH_KIND = ["evalsha", "multi", "ping", "hset", "rpush", "zadd"]
CASES = [(ON_THE_PATH, "lane", command) for command in REFUSED_ON_THE_WAY if command not in ELSEWHERE]
CASES += [
    (server, way, command)
    for server, way in ((ON_THE_PATH, "redis-py"), (REDIS_8, "lane"), (REDIS_8, "redis-py"))
    for command in OF_EACH_KIND
]


@pytest.mark.parametrize(("redis_server", "open_memory", "command"), CASES, indirect=["redis_server", "open_memory"])
def test_every_command_that_is_not_allowed_is_named(open_memory: Open, admin: Any, command: str) -> None:
    admin.execute_command("ACL", "SETUSER", "app", f"-{command}")
    memory = open_memory()
    errors = refusals(memory)
    memory.close()
    assert errors
    for refused in errors:
        assert command.upper() in str(refused)
        assert refused.command in (command, ""), "empty where a line of a script has two"
        assert "NOPERM" in str(refused)
        assert not isinstance(refused, StoreUnavailable)


def test_an_append_stands_if_the_acl_forbids_wait(open_memory: Open, admin: Any) -> None:
    """The append is written before WAIT is refused. A refusal would make the caller repeat it."""
    admin.execute_command("ACL", "SETUSER", "app", "-wait")
    memory = open_memory()
    session = memory.session("a")
    for id, again in ((None, "no id: a retry would write it twice"), ("one", "a retry with the same id is safe")):
        refusal = rf"written, but not confirmed by any replica: WAIT was refused \(NOPERM\).*{again}$"
        with pytest.raises(Unconfirmed, match=refusal) as refused:
            session.append_and_read(user(1), confirm=1, id=id)
        assert (refused.value.replicas, refused.value.wanted) == (0, 1)
    assert session.append(user(1), id="one").duplicate
    assert session.info().total_messages == 2
    memory.close()


def test_another_namespace_is_refused_as_its_keys(open_memory: Open, admin: Any) -> None:
    admin.execute_command("ACL", "SETUSER", "app", "resetkeys", "~other")
    memory = open_memory()
    for call in (memory.session("a").exists, lambda: memory.session("a").append(user(1)), memory.count):
        with pytest.raises(NotAllowed, match="use one of the keys") as refused:
            call()
        assert refused.value.command == ""
    memory.close()


SHA = scripts.load("append").sha.decode()
LINE_OF = {
    name: next(
        number
        for number, line in enumerate(scripts.load("append").source.decode().splitlines(), 1)
        if f"redis.call('{name}'" in line
    )
    for name in ("RPUSH", "HSET")
}


@pytest.mark.parametrize(
    ("text", "command", "said"),
    [
        ("NOPERM this user has no permissions to run the 'ping' command", "ping", "run PING (NOPERM)"),
        ("NOPERM User app has no permissions to run the 'config|get' command", "config|get", "run CONFIG|GET"),
        (
            f"NOPERM User app has no permissions to run the 'rpush' command script: {SHA}, on @user_script:3.",
            "rpush",
            "run RPUSH within a script",
        ),
        (
            "ERR The user executing the script can't run this command or subcommand script: "
            f"{SHA}, on @user_script:{LINE_OF['RPUSH']}.",
            "rpush",
            "run RPUSH within a script",
        ),
        (
            f"ERR The user executing the script can't run this command or subcommand script: {'0' * 40}, "
            f"on @user_script:{LINE_OF['HSET']}.",
            "",
            "run a command within a script",
        ),
        (
            "ERR The user executing the script can't access at least one of the keys mentioned in the command "
            f"arguments script: {SHA}, on @user_script:{LINE_OF['HSET']}.",
            "",
            "use one of the keys of this call within a script",
        ),
        (
            "ERR ACL failure in script: User app has no permissions to run the 'rpush' command script: "
            f"{SHA}, on @user_script:3.",
            "rpush",
            "run RPUSH within a script",
        ),
        ("NOPERM this user has no permissions to access one of the keys used as arguments", "", "use one of the keys"),
        ("NOPERM No permissions to access a key", "", "use one of the keys"),
        (
            "NOPERM this user has no permissions to access one of the channels used as arguments",
            "",
            "use one of the channels",
        ),
        ("NOPERM No permissions to access a channel", "", "use one of the channels"),
    ],
)
def test_the_error_texts_of_servers_are_understood(text: str, command: str, said: str) -> None:
    refused = replies.refusal(ServerError(text.partition(" ")[0], text), "user-42")
    assert isinstance(refused, NotAllowed)
    assert (refused.command, refused.session_id) == (command, "user-42")
    assert said in str(refused)


@pytest.mark.parametrize("missing", ["resetchannels", "-ssubscribe", "-sunsubscribe", "-spublish"])
def test_the_doctor_warns_of_polling_and_publishes_nothing(
    admin: Any, redis_server: Any, namespace: str, missing: str, capsys: pytest.CaptureFixture[str]
) -> None:
    url = str(redis_server.url).replace("redis://", "redis://app:pw@")

    def examine() -> tuple[dict[str, Any], str]:
        assert main(["doctor", "--json", "--url", url, "--namespace", namespace]) == 0
        report = json.loads(capsys.readouterr().out)
        return next(each for each in report["findings"] if each["name"] == "listeners"), report.get("acl", "")

    admin.execute_command("ACL", "SETUSER", "app", missing)
    admin.config_resetstat()
    found, acl = examine()
    assert (found["verdict"], "poll every 0.25 s" in found["seen"]) == ("warn", True)
    assert missing == "resetchannels" or missing[1:].upper() in found["seen"]
    admin.execute_command(*acl.replace(" USER ", " app ").split())
    found, acl = examine()
    assert (found["verdict"], acl) == ("ok", "")
    assert sum(admin.info("commandstats").get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in LISTENING) == 0


@pytest.mark.parametrize("command", ["ping", "rpush", "evalsha", "zcard", "wait"])
def test_the_permissions_that_the_doctor_names_are_enough(
    admin: Any, redis_server: Any, namespace: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    url = str(redis_server.url).replace("redis://", "redis://app:pw@")
    arguments = ["doctor", "--json", "--url", url, "--namespace", namespace]
    assert main(arguments) == 0
    assert "acl" not in json.loads(capsys.readouterr().out)
    admin.execute_command("ACL", "SETUSER", "app", f"-{command}")
    assert main(arguments) == (3 if command == "ping" else 1)
    report = json.loads(capsys.readouterr().out)
    failed = [each for each in report["findings"] if each["verdict"] == "fail"]
    assert any(command.upper() in each["seen"] for each in failed)
    if command != "ping":  # without it nothing else is checked
        assert command.upper() in next(each["seen"] for each in failed if each["name"] == "commands")
    assert not any("redismem doctor" in each["seen"] for each in failed), "this is the doctor"
    assert main([word for word in arguments if word != "--json"]) == (3 if command == "ping" else 1)
    assert report["acl"] in capsys.readouterr().out.splitlines(), "on one line, to be copied"
    assert list(admin.scan_iter(f"*{namespace}*")) == [], "it has written nothing"
    admin.execute_command(*report["acl"].replace("USER app", "").replace(" USER ", " app ").split())
    assert main(arguments) == 0
