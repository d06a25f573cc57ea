"""The blocking chat: a turn, its retry, and its errors, as a client of it sees them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from support.example_processes import Places, serve_example


def test_a_turn_is_answered_once_and_failures_are_statuses(places: Places) -> None:
    provider = places.provider
    turn = {"id": "turn-1", "text": "Do you repair tandems?"}
    with serve_example("flask_chat.py", places) as client:
        provider.mode = "401"
        failed = client.post("/chats/anna/turns", json=turn)
        assert (failed.status_code, failed.json()["detail"]) == (502, "the model gave no answer")
        provider.mode, provider.text = "ok", "Yes, within a week."
        for _ in range(2):  # the second is a retry of a turn that was answered
            assert client.post("/chats/anna/turns", json=turn).json() == {"reply": "Yes, within a week."}
        assert len(provider.asked) == 2
        assert [message["role"] for message in provider.bodies[-1]["messages"]] == ["system", "user"]
        stored = client.get("/chats/anna").json()["messages"]
        assert [message["content"] for message in stored] == [turn["text"], "Yes, within a week."]

        provider.mode = "hang"
        second = {"id": "turn-2", "text": "And tricycles?"}
        with ThreadPoolExecutor() as pool:
            both = [pool.submit(client.post, "/chats/anna/turns", json=second) for _ in range(2)]
            provider.wait_for_asked(4)
            provider.release()
        assert sorted(future.result().status_code for future in both) == [200, 409]  # a retry was too early
        assert client.post("/chats/anna/turns", json=second).status_code == 200
        assert len(client.get("/chats/anna").json()["messages"]) == 4

        other = client.post("/chats/anna/turns", json=turn | {"text": "Something else"})
        assert other.status_code == 422  # an id names one question
        assert client.post("/chats/anna/turns", json={"id": "turn-3"}).status_code == 422
        assert client.post("/chats/anna/turns", json={"id": "turn-3", "text": "x" * 9_000_000}).status_code == 413
        assert client.delete("/chats/anna").status_code == 204
        assert client.get("/chats/anna").status_code == 404
