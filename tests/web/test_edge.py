"""The edge: size limits, deadlines, headers, origins, and problems that quote no text."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import redis
from support.checks import until
from support.http_service import PATIENT, RunningService, numbered_message, run_service, serve_memory
from support.proxy import Proxy
from support.redis_server import RedisServer
from support.stores import LONG_DEADLINES, short_deadlines

from redismem import Memory, Settings
from redismem.errors import InvalidSettings, InvalidTime, NotAllowed, NotInWindow, RedismemError, SessionExists
from redismem.protocol import permissions
from redismem.web.access import Access
from redismem.web.edge import HEADERS
from redismem.web.http.problems import CODES, Problem, to_problem
from redismem.web.service import Limits, Service

CANARY = "canary-7c1f"


async def test_every_answer_has_the_headers(http: RunningService) -> None:
    for method, path in (("GET", "/livez"), ("GET", "/nothing"), ("POST", "/v1/sessions"), ("GET", "/openapi.json")):
        answer = await http.ask(method, path)
        assert {name: answer.headers[name.decode()].encode() for name, _ in HEADERS} == dict(HEADERS)
        assert "server" not in answer.headers
        assert "access-control-allow-origin" not in answer.headers


async def test_refusals_are_problems_with_codes(http: RunningService) -> None:
    asked = {
        ("GET", "/v1/nothing"): "not_found",
        ("PUT", "/v1/sessions"): "method_not_allowed",
        ("GET", "/v1/sessions/none"): "session_not_found",
        ("GET", "/v1/sessions?limit=x"): "invalid",
        ("GET", "/v1/sessions/a/b/messages"): "not_found",
    }
    for (method, path), code in asked.items():
        answer = await http.ask(method, path)
        problem = answer.json()
        assert answer.headers["content-type"] == "application/problem+json"
        assert (answer.status_code, problem["code"]) == (CODES[code][0], code)
        assert (problem["type"], problem["status"]) == (f"urn:redismem:problem:{code}", answer.status_code)


async def test_a_refusal_quotes_nothing_from_the_request(
    http: RunningService, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "redismem")
    deep: Any = CANARY
    for _ in range(150):
        deep = [deep]
    bodies: list[Any] = [{"role": CANARY, "x": deep}, [CANARY], {"a": float("inf"), "b": CANARY}]
    for body in bodies:
        text = json.dumps(body).encode()
        for method, path in (("POST", "/v1/sessions/s/messages"), ("PATCH", "/v1/sessions/s/state")):
            answer = await http.ask(method, path, content=text)
            assert answer.status_code in (400, 422)
            assert CANARY not in answer.text
    answer = await http.ask("PATCH", "/v1/sessions/s/state", json={"waiting_for_param": [CANARY]})
    assert answer.status_code == 422
    assert CANARY not in answer.text + caplog.text


async def test_a_header_that_has_one_value_may_not_be_repeated(http: RunningService) -> None:
    for name, value in [
        *(("Authorization", "Bearer rmk_one"), ("Idempotency-Key", "turn-1"), ("If-Match", '"0"')),
        *(("Origin", "http://localhost"), ("Last-Event-ID", "a.0")),
    ]:
        for path in ("/v1/sessions/s/messages", "/v1/sessions/s/policy"):
            refused = await http.ask(
                "POST", path, json=numbered_message(1), headers=[(name, value), (name.lower(), value)]
            )
            assert (refused.status_code, refused.json()["code"]) == (400, "bad_request")
            assert value not in refused.text
        assert (await http.ask("GET", "/v1/sessions/s")).status_code == 404
    repeated = [("Accept", "a/b"), ("Accept", "c/d")]
    assert (await http.ask("GET", "/livez", headers=repeated)).status_code == 200


async def test_a_request_has_one_host(http: RunningService) -> None:
    """A server without keys refuses foreign hosts by this header."""
    reader, writer = await asyncio.open_connection(http.client.base_url.host, http.client.base_url.port)
    writer.write(b"GET /livez HTTP/1.1\r\nHost: shop.example\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b'"code":"bad_request"' in answer
    writer.close()


async def test_a_body_is_utf_8(http: RunningService) -> None:
    for encoding in ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"]:
        for method, path, body in (
            ("POST", "/v1/sessions/s/messages", '{"role": "user", "content": "ü"}'),
            ("PATCH", "/v1/sessions/s/state", '{"plan": "ü"}'),
            ("POST", "/api/chat/clear", '{"session_id": "ü"}'),
        ):
            answer = await http.ask(method, path, content=body.encode(encoding))
            assert (answer.status_code, answer.json()["code"]) == (400, "bad_request"), path
            assert (await http.ask(method, path, content=body.encode())).status_code in (200, 201, 204), path


@pytest.mark.parametrize("path", ["/v1/sessions/s/messages", "/v1/sessions/s/state", "/v1/dead/retry"])
@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_over_its_limit_is_refused_before_it_is_parsed(memory: Memory, path: str, chunked: bool) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b"[" * 100

    async with serve_memory(memory, limits=Limits(body_bytes=1_000)) as http:
        method = "PATCH" if path.endswith("state") else "POST"
        answer = await http.ask(method, path, content=chunks() if chunked else b"[" * 1_001)
        assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


async def test_a_message_over_the_limit_of_the_memory_is_too_large(memory: Memory, store: Any) -> None:
    namespace = memory.store.keys.namespace
    async with store.memory(namespace, Settings(max_message_bytes=200)) as small, serve_memory(small) as http:
        answer = await http.ask("POST", "/v1/sessions/s/messages", json=numbered_message("x" * 300))
        assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


@pytest.fixture
async def behind(proxy: Proxy, namespace: str) -> AsyncIterator[Memory]:
    """A memory whose connection to Redis can be cut."""
    async with Memory.connect(proxy.url, namespace=namespace, settings=LONG_DEADLINES) as memory:
        yield memory


async def test_a_store_that_does_not_answer_is_503_until_it_is_back(
    behind: Memory, proxy: Proxy, direct_memory: Memory
) -> None:
    async with serve_memory(behind) as http:
        assert (await http.ask("POST", "/v1/sessions/s/messages", json=numbered_message(1))).status_code == 201
        with short_deadlines(behind):
            await proxy.refuse()
            asked = [("POST", "/v1/sessions/s/messages"), ("GET", "/v1/sessions/s"), ("GET", "/v1/queues")]
            for method, path in asked:
                asked_with: Any = (
                    {"json": numbered_message(2), "headers": {"Idempotency-Key": "turn-2"}} if method == "POST" else {}
                )
                answer = await http.ask(method, path, **asked_with)
                assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
                assert int(answer.headers["retry-after"]) >= 1
                assert "detail" not in answer.json()
            ready = await http.ask("GET", "/readyz")
            assert (ready.status_code, ready.json()["readable"], ready.json()["writable"]) == (503, False, False)
            assert ready.json()["keeping"] is True, "nothing else is known of it"
            assert (await http.ask("GET", "/livez")).status_code == 200
            await proxy.accept_again()

        async def readable() -> Any:
            found = (await http.ask("GET", "/readyz")).json()
            return found["readable"] and found

        assert (await until(readable))["writable"] is True, "the look that finds it is not the only one"
        assert (await http.ask("POST", "/v1/sessions/s/messages", json=numbered_message(3))).status_code == 201


async def test_a_store_that_refuses_writes_is_readable_and_not_writable(tmp_path: Any, namespace: str) -> None:
    server = RedisServer(tmp_path).start()
    try:
        async with (
            Memory.connect(server.url, namespace=namespace, settings=LONG_DEADLINES) as memory,
            serve_memory(memory) as http,
        ):
            assert (await http.ask("GET", "/readyz")).json()["writable"] is True
            with redis.Redis(port=server.port) as admin:
                admin.config_set("maxmemory", 1)
            ready = await http.ask("GET", "/readyz")
            assert ready.status_code == 503
            assert (ready.json()["readable"], ready.json()["writable"]) == (True, False)
            refused = await http.ask("POST", "/v1/sessions/s/messages", json=numbered_message(1))
            assert (refused.status_code, refused.json()["reason"]) == (503, "OOM")
    finally:
        server.stop()


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
async def test_a_store_that_evicts_keys_is_not_ready(tmp_path: Any, namespace: str, policy: str) -> None:
    server = RedisServer(tmp_path).start()
    try:
        async with (
            Memory.connect(server.url, namespace=namespace, settings=LONG_DEADLINES) as memory,
            serve_memory(memory) as http,
        ):
            assert (await http.ask("GET", "/readyz")).status_code == 200
            with redis.Redis(port=server.port) as admin:
                admin.config_set("maxmemory-policy", policy)
                ready = await http.ask("GET", "/readyz")
                document = {"live": True, "readable": True, "writable": True, "keeping": False, "stopping": False}
                assert (ready.status_code, ready.json()) == (503, document)
                admin.config_set("maxmemory-policy", "noeviction")
            assert (await http.ask("GET", "/readyz")).status_code == 200
    finally:
        server.stop()


async def test_a_store_that_hides_its_policy_is_ready(redis_server: RedisServer, namespace: str) -> None:
    """The ACL for pods does not include INFO."""
    with redis.Redis(port=redis_server.port) as admin:
        admin.execute_command(*f"ACL SETUSER untold reset on >pw {permissions.acl(namespace)}".split())
        try:
            url = redis_server.url.replace("redis://", "redis://untold:pw@")
            async with (
                Memory.connect(url, namespace=namespace, settings=LONG_DEADLINES) as memory,
                serve_memory(memory) as http,
            ):
                ready = await http.ask("GET", "/readyz")
                assert (ready.status_code, ready.json()["keeping"]) == (200, True)
        finally:
            admin.execute_command("ACL", "DELUSER", "untold")


async def test_a_namespace_that_fails_takes_the_server_from_no_other(redis_server: RedisServer, namespace: str) -> None:
    """The ACL of the first tenant was removed."""
    first, second = f"{namespace}-shop", f"{namespace}-bank"
    with redis.Redis(port=redis_server.port) as admin:
        admin.execute_command("ACL", "SETUSER", namespace, "on", ">pw", "~*", "+@all")
        try:
            url = redis_server.url.replace("redis://", f"redis://{namespace}:pw@")
            async with (
                Memory.connect(url, namespace=first, settings=LONG_DEADLINES) as shop,
                Memory.connect(url, namespace=second, settings=LONG_DEADLINES) as bank,
                run_service(Service({first: shop, second: bank}, Access.of("", first), PATIENT)) as http,
            ):
                admin.execute_command(*f"ACL SETUSER {namespace} reset on >pw {permissions.acl(second)}".split())
                with pytest.raises(NotAllowed):
                    await shop.take("readyz", 1, 1)
                assert (await http.ask("GET", "/readyz")).status_code == 200
                admin.execute_command(*f"ACL SETUSER {namespace} reset on >pw {permissions.acl('none')}".split())
                ready = await http.ask("GET", "/readyz")
                assert (ready.status_code, ready.json()["writable"]) == (503, False)
        finally:
            admin.execute_command("ACL", "DELUSER", namespace)


async def test_a_request_has_a_deadline(proxy: Proxy, namespace: str) -> None:
    patient = Settings(deadline_s=60, reply_timeout_s=60)
    async with (
        Memory.connect(proxy.url, namespace=namespace, settings=patient) as memory,
        serve_memory(memory, limits=Limits(request_s=0.1)) as http,
    ):
        assert (await http.ask("GET", "/livez")).status_code == 200
        proxy.break_next("freeze", count=float("inf"))
        for path in ("/v1/sessions/s", "/v1/sessions/s/messages"):
            answer = await http.ask("GET" if path.endswith("s/s") else "POST", path, json=numbered_message(1))
            assert (answer.status_code, answer.json()["code"]) == (503, "too_late")


async def test_a_stopping_service_refuses_requests(memory: Memory) -> None:
    async with serve_memory(memory) as http:
        http.service.stopping.set()
        answer = await http.ask("POST", "/v1/sessions/s/messages", json=numbered_message(1))
        assert (answer.status_code, answer.json()["code"]) == (503, "stopping")
        assert (await http.ask("GET", "/readyz")).status_code == 503
        assert (await http.ask("GET", "/livez")).json() == {"live": True, "stopping": True}


async def test_running_requests_finish_before_the_server_stops(
    proxy: Proxy, direct_memory: Memory, namespace: str
) -> None:
    async with Memory.connect(proxy.url, namespace=namespace, settings=LONG_DEADLINES) as memory:
        async with serve_memory(memory, stop_s=30) as http:
            await http.ask("POST", "/v1/sessions/s/messages", json=numbered_message(1))
            proxy.break_next("delay", to=b"EVALSHA", delay_s=0.5)
            turn = asyncio.create_task(http.ask("POST", "/v1/sessions/s/messages", json=numbered_message(2)))
            await until(lambda: proxy.count(b"EVALSHA") >= 2)
            http.stop_event.set()
            assert (await turn).status_code == 201
        assert len((await direct_memory.session("s").read()).messages) == 2


async def test_without_keys_only_requests_to_localhost_are_answered(http: RunningService) -> None:
    """Otherwise a page could point its own host name to this address and read everything (DNS rebinding)."""
    for host in ["shop.example", "127.0.0.1.example", "", "[::2]", "[x"]:
        answer = await http.ask("GET", "/v1/sessions", headers={"Host": host})
        assert answer.status_code in (400, 403)


async def test_without_keys_pages_of_other_origins_are_refused(http: RunningService) -> None:
    for origin in ("https://shop.example", "null", "http://127.0.0.1:1"):
        answer = await http.ask("POST", "/v1/sessions", headers={"Origin": origin})
        assert (answer.status_code, answer.json()["code"]) == (403, "not_allowed")
    own = str(http.client.base_url).rstrip("/")
    assert (await http.ask("POST", "/v1/sessions", headers={"Origin": own})).status_code == 201


async def test_a_configured_origin_is_allowed(memory: Memory) -> None:
    origin = "https://shop.example"
    async with serve_memory(memory, cors_origins=(origin,)) as http:
        asked = {"Origin": origin, "Access-Control-Request-Method": "POST"}
        preflight = await http.ask("OPTIONS", "/v1/sessions", headers=asked)
        assert (preflight.status_code, preflight.headers["access-control-allow-origin"]) == (204, origin)
        document = (await http.ask("GET", "/openapi.json")).json()
        methods = {method.upper() for operations in document["paths"].values() for method in operations}
        assert set(preflight.headers["access-control-allow-methods"].split(", ")) == methods
        answer = await http.ask("POST", "/v1/sessions", headers={"Origin": origin})
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (201, origin)
        other = await http.ask("OPTIONS", "/v1/sessions", headers=asked | {"Origin": "https://other.example"})
        assert other.status_code == 403
        assert "access-control-allow-origin" not in other.headers


async def test_a_client_that_disconnects_midway_does_not_affect_others(http: RunningService) -> None:
    url = http.client.base_url
    reader, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(b"POST /v1/sessions/s/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    del reader
    assert (await http.ask("GET", "/livez")).status_code == 200


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotInWindow("it was popped", CANARY), "not_in_window"),
        (SessionExists("it lives", CANARY), "session_exists"),
        (NotAllowed(f"the ACL does not allow {CANARY}", command="set"), "store_not_allowed"),
        (InvalidTime(f"a clock gave {CANARY}"), "internal"),
    ],
)
def test_a_redismem_error_has_a_code_and_names_no_session(error: RedismemError, code: str) -> None:
    problem = to_problem(error)
    assert problem.code == code
    assert CANARY.encode() not in problem.document()


async def test_a_command_that_the_acl_forbids_is_store_not_allowed(redis_server: RedisServer, namespace: str) -> None:
    with redis.Redis(port=redis_server.port) as admin:
        admin.execute_command(*f"ACL SETUSER unrated reset on >pw {permissions.acl(namespace)} -set".split())
        try:
            url = redis_server.url.replace("redis://", "redis://unrated:pw@")
            rated = Limits(request_s=60, rate_per_s=1)
            async with (
                Memory.connect(url, namespace=namespace, settings=LONG_DEADLINES) as memory,
                serve_memory(memory, limits=rated) as http,
            ):
                answer = await http.ask("GET", "/v1/sessions")
                assert (answer.status_code, answer.json()["code"]) == (503, "store_not_allowed")
                ready = (await http.ask("GET", "/readyz")).json()
                assert (ready["readable"], ready["writable"]) == (True, False)
        finally:
            admin.execute_command("ACL", "DELUSER", "unrated")


def test_a_foreign_error_is_500_without_its_text() -> None:
    problem = to_problem(RuntimeError(CANARY))
    assert problem.status == 500
    assert CANARY.encode() not in problem.document()


@pytest.mark.parametrize("kind", [RuntimeError, InvalidSettings])
async def test_a_defect_is_500_and_logged_once_by_its_kind_and_route(
    memory: Memory, caplog: pytest.LogCaptureFixture, kind: type[Exception]
) -> None:
    class Broken(Service):
        def memory(self, caller: Any) -> Any:
            raise kind(CANARY)

    name = memory.store.keys.namespace
    async with run_service(Broken({name: memory}, Access.of("", name), PATIENT)) as http:
        for path in ("/v1/sessions", f"/v1/sessions/{CANARY}"):
            answer = await http.ask("GET", path)
            assert (answer.status_code, answer.json()["code"]) == (500, "internal")
            assert CANARY not in answer.text
    routes = ("/v1/sessions", "/v1/sessions/{session_id}")
    assert [record.getMessage() for record in caplog.records if record.name == "redismem"] == [
        f"GET {route} failed with {kind.__name__}" for route in routes
    ]
    assert CANARY not in caplog.text


def test_retry_after_is_in_whole_seconds() -> None:
    assert (b"retry-after", b"3") in Problem("too_many_requests", retry_after_s=2.1).headers()
    assert (b"retry-after", b"1") in Problem("store_unavailable").headers()
    assert isinstance(httpx.Headers(Problem("no_key").headers())["www-authenticate"], str)
