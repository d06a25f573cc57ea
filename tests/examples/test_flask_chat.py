"""The blocking chat: a turn, its retry, its stop, and its errors, as a client of it sees them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from support.example_processes import Places, serve_example

from redismem.blocking import Memory


def test_a_turn_is_answered_once_and_failures_are_statuses(places: Places) -> None:
    provider = places.provider
    turn = {"id": "turn-1", "text": "Do you repair tandems?"}
    with serve_example("flask_chat.py", places) as client:
        provider.mode = "401"
        failed = client.post("/chats/anna/turns", json=turn)
        assert (failed.status_code, failed.json()["detail"]) == (502, "the model gave no answer")
        provider.mode, provider.pieces = "ok", ["Yes, ", "within ", "a week."]
        for _ in range(2):  # the second is a retry of a turn that was answered
            assert client.post("/chats/anna/turns", json=turn).json() == {"reply": "Yes, within a week."}
        assert len(provider.asked) == 2
        assert [message["role"] for message in provider.bodies[-1]["messages"]] == ["system", "user"]
        stored = client.get("/chats/anna").json()["messages"]
        assert [message["content"] for message in stored] == [turn["text"], "Yes, within a week."]

        provider.mode = "silent"
        second = {"id": "turn-2", "text": "And tricycles?"}
        with ThreadPoolExecutor() as pool:
            both = [pool.submit(client.post, "/chats/anna/turns", json=second) for _ in range(2)]
            provider.wait_for_asked(3)
            provider.release()
        replies = [future.result() for future in both]
        assert [answer.status_code for answer in replies] == [200, 200]  # the retry waited for the answer
        assert replies[0].json() == replies[1].json()
        assert (len(provider.asked), len(client.get("/chats/anna").json()["messages"])) == (3, 4)

        other = client.post("/chats/anna/turns", json=turn | {"text": "Something else"})
        assert other.status_code == 422  # an id names one question
        assert client.post("/chats/anna/turns", json={"id": "turn-5"}).status_code == 422
        assert client.post("/chats/anna/turns", json={"id": "turn-5", "text": "x" * 9_000_000}).status_code == 413
        assert client.delete("/chats/anna").status_code == 204
        assert client.get("/chats/anna").status_code == 404


def test_a_stop_keeps_what_was_said_and_so_does_a_failure(places: Places) -> None:
    provider = places.provider
    provider.pieces = ["Yes, ", "within ", "a week."]
    with serve_example("flask_chat.py", places) as client:
        turn = {"id": "turn-1", "text": "And unicycles?"}
        with ThreadPoolExecutor() as pool, Memory.connect(places.redis_url, namespace=places.namespace) as memory:
            provider.mode = "hang"  # after two pieces
            asking = pool.submit(client.post, "/chats/anna/turns", json=turn)
            provider.wait_for_asked(1)
            told = memory.session("anna").follow(turn="turn-1")
            said = ""
            while said != "Yes, within ":
                said += next(told)[1].get("delta", "")
            assert client.post("/chats/anna/stop").json() == {"stopped": True}
            provider.release()
            assert asking.result().json() == {"reply": "Yes, within "}
        assert client.post("/chats/anna/stop").json() == {"stopped": False}
        provider.mode = "break"
        assert client.post("/chats/anna/turns", json=turn | {"id": "turn-2"}).status_code == 502
        assert client.post("/chats/anna/turns", json=turn | {"id": "turn-2"}).json() == {"reply": "Yes, within "}
