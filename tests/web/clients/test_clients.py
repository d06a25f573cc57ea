"""The real JavaScript clients read the streams: whole, broken and resumed, with each outcome."""

from pathlib import Path
from typing import Any

import pytest
from support.node_clients import drive, prepare_drivers
from support.stream_server import StreamServer, serve_events
from support.streams import KEY, QUESTION, WEATHER, Event, call, convert_all, end, text

from redismem.formats.streams.requests import TurnRequest

pytestmark = pytest.mark.nightly
SECRET = "key-1"
ANSWER = [*WEATHER, text("\ud800 ü\u2028"), end()]
ASKED = [{"role": "user", "content": "Rain?"}]


@pytest.fixture(scope="module")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare_drivers(tmp_path_factory.mktemp("clients"))


def ask(drivers: Path, name: str, events: list[Event], **options: Any) -> tuple[Any, StreamServer]:
    with serve_events(events, SECRET) as server:
        told = drive(drivers, name, base=server.url, session="chat-1", key=SECRET, text="Rain?", **options)
    return told, server


def chat(drivers: Path, events: list[Event], **options: Any) -> dict[str, Any]:
    told, server = ask(drivers, "ai_sdk", events, message_id="m1", **options)
    assert [turn for turn in server.turns if turn != TurnRequest("chat-1", "m1", ASKED)] == []
    return dict(told)


def parts_of(told: dict[str, Any]) -> list[dict[str, Any]]:
    question, answer = told["messages"]
    assert (question["id"], answer["id"], answer["role"]) == ("m1", KEY, "assistant")
    return [part for part in answer["parts"] if part["type"] != "step-start"]


def test_use_chat_shows_the_answer(drivers: Path) -> None:
    told = chat(drivers, ANSWER)
    assert (told["status"], told["finishes"]) == ("ready", [{"isDisconnect": False, "finishReason": "stop"}])
    reasoning, first, tool, place, notice, second = parts_of(told)
    assert (reasoning["type"], reasoning["text"], reasoning["state"]) == ("reasoning", "They ask for rain.", "done")
    assert (first["text"], second["text"]) == ("Let me look.", "It rains.\ud800 ü\u2028")
    assert (tool["type"], tool["state"], tool["input"]) == ("tool-weather", "output-available", {"city": "Bergen"})
    assert (tool["output"], told["tools"]) == ({"rain": True}, ["c1"])
    assert (place["data"], notice["type"]) == ({"lat": 60.4}, "data-notice")


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_use_chat_resumes_a_broken_stream_without_doubling_anything(drivers: Path, share: float) -> None:
    whole = chat(drivers, ANSWER)
    told = chat(drivers, ANSWER, break_after=int(len(convert_all("ai", ANSWER)) * share))
    assert [finish["isDisconnect"] for finish in told["finishes"]] == [True, False]
    assert (told["status"], told["messages"]) == ("ready", whole["messages"])


def test_use_chat_on_a_new_page_gets_the_running_answer_or_none(drivers: Path) -> None:
    whole = chat(drivers, ANSWER)
    assert chat(drivers, ANSWER, resume=True)["messages"] == whole["messages"]
    told = chat(drivers, [], resume=True)
    assert (told["status"], len(told["messages"])) == ("ready", 1)


@pytest.mark.parametrize(("outcome", "status"), [("stopped", "ready"), ("failed", "error"), ("lost", "error")])
def test_use_chat_closes_what_an_end_cuts(drivers: Path, outcome: str, status: str) -> None:
    told = chat(drivers, [QUESTION, call("c1", '{"city":'), text("Hal"), end(outcome)])
    assert (told["status"], told.get("error") is not None) == (status, status == "error")
    tool, words = parts_of(told)
    assert (words["text"], words["state"]) == ("Hal", "done")
    assert (tool["state"], tool["errorText"]) == ("output-error", "The turn ended before the input was complete.")


def run(drivers: Path, events: list[Event], **options: Any) -> list[Any]:
    runs, server = ask(drivers, "ag_ui", events, run_id="run-1", **options)
    assert all(turn == TurnRequest("chat-1", "run-1", ASKED) for turn in server.turns)
    return list(runs)


def test_an_agent_of_ag_ui_gets_the_answer(drivers: Path) -> None:
    (told,) = run(drivers, ANSWER)
    assert "failure" not in told
    assert told["end"]["outcome"] == {"type": "success"}
    question, reasoning, first, tool, second = told["messages"]
    assert (question["content"], reasoning["role"], reasoning["content"]) == (
        "Rain?",
        "reasoning",
        "They ask for rain.",
    )
    assert (first["content"], second["content"]) == ("Let me look.", "It rains.\ud800 ü\u2028")
    assert first["toolCalls"][0]["function"] == {"name": "weather", "arguments": '{"city":"Bergen"}'}
    assert (tool["role"], tool["toolCallId"], tool["content"]) == ("tool", "c1", '{"rain":true}')


def test_an_agent_of_ag_ui_gets_a_broken_run_again_with_the_same_ids(drivers: Path) -> None:
    (whole,) = run(drivers, ANSWER)
    broken, again = run(drivers, ANSWER, break_after=1_500)
    assert broken["failure"]
    assert again == whole


@pytest.mark.parametrize(
    ("outcome", "end_type"), [("stopped", "RUN_FINISHED"), ("failed", "RUN_ERROR"), ("lost", "RUN_ERROR")]
)
def test_an_agent_of_ag_ui_accepts_every_end(drivers: Path, outcome: str, end_type: str) -> None:
    (told,) = run(drivers, [QUESTION, call("c1", '{"city":'), text("Hal"), end(outcome)])
    assert told["end"]["type"] == end_type
    assert ("failure" in told) == (end_type == "RUN_ERROR")
    assert told["messages"][-1]["content"] == "Hal"


def respond(drivers: Path, events: list[Event], **options: Any) -> dict[str, Any]:
    told, server = ask(drivers, "responses", events, turn_id="turn-1", **options)
    asked = TurnRequest("chat-1", None, ASKED, is_background=True, model="any")
    assert server.turns == [asked]
    assert told["numbers"] == list(range(len(told["numbers"])))
    return dict(told)


def test_the_openai_client_gets_the_answer(drivers: Path) -> None:
    told = respond(drivers, ANSWER)
    response = told["rebuilt"]
    assert response["status"] == "completed"
    assert response["output_text"] == "Let me look.It rains.\ud800 ü\u2028"
    assert [item["type"] for item in response["output"]] == [
        *("reasoning", "message", "function_call", "function_call_output", "message")
    ]
    assert told["replayed"] == response


@pytest.mark.parametrize("seen", [1, 2, 12, 25])
def test_the_openai_client_resumes_behind_any_event(drivers: Path, seen: int) -> None:
    whole = respond(drivers, ANSWER)
    assert respond(drivers, ANSWER, break_after=seen) == whole


@pytest.mark.parametrize(("outcome", "status"), [("stopped", "incomplete"), ("failed", "failed"), ("lost", "failed")])
def test_the_openai_client_accepts_every_end(drivers: Path, outcome: str, status: str) -> None:
    told = respond(drivers, [QUESTION, call("c1", '{"city":'), text("Hal"), end(outcome)])
    assert (told["rebuilt"]["status"], told["rebuilt"]["output_text"]) == (status, "Hal")
