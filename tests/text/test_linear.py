"""The time to read any text or history grows no faster than its length."""

from __future__ import annotations

import gc
import io
import math
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import pytest
from rich.console import Console
from support.selection import EVERYTHING

from redismem.cli import session_view
from redismem.context.context import Context
from redismem.context.info import SessionInfo
from redismem.context.results import State, Summary
from redismem.formats.tool_groups import cut_after, cut_before, links, open_calls
from redismem.messages.decoding import decode_messages
from redismem.messages.encoding import encode_message
from redismem.messages.message import Message
from redismem.messages.values import decode_value, encode_value
from redismem.models.anthropic import Anthropic
from redismem.models.extractive.summarizer import compose
from redismem.models.lost_facts import restore_lost_facts
from redismem.session.paging import narrow
from redismem.text.data_runs import replace_data
from redismem.text.plain import (
    clean_text,
    escape_tags,
    one_line,
    pieces,
    render_message,
    shorten,
    speaker,
    split_transcript,
)
from redismem.text.stems import stems
from redismem.text.word_counts import Sketch, learn_messages

T = TypeVar("T")
STAMP = b"\xcf" + (1_700_000_000_123).to_bytes(8, "big")
LONG = 1_000
# A text 16 times as long must cost at most 4 times more a character. In quadratic time it costs up to 16 times more.
# Linear time may cost more, too, where the text no longer fits the caches that other processes use. So a text that
# costs more is followed by longer ones: in quadratic time the last costs 1,024 times more a character, and caches
# never cost 100 times more.
TIMES = (16, 64, 256, 1_024)
MOST_EACH = 4.0
QUADRATIC_EACH = 100.0


def many(text: str) -> Callable[[int], str]:
    return lambda chars: (text * (chars // len(text) + 1))[:chars]


def between(head: str, text: str, tail: str) -> Callable[[int], str]:
    return lambda chars: head + many(text)(chars) + tail


SHAPES: dict[str, Callable[[int], str]] = {
    "an open tag and spaces": between("<", " ", "x"),
    "a closing tag and spaces": between("</", " ", "x"),
    "spaces on both sides of a slash": between("<" + " " * 500 + "/", " ", "x"),
    "tags that begin": many("<"),
    "data URLs that begin": many("data:a/"),
    "parameters of a data URL": between("data:a/b", ";a=b", ""),
    "runs of data": many("A1b" * 22 + " "),
    "runs that are too short": many("A1b" * 21 + " "),
    "tags and spaces": many("< / "),
    "tags and line feeds": between("<", "\n", "summary"),
    "closed summaries": many("</summary>"),
    "half words of a tag": many("<summar"),
    "question marks": between("", "?", "a"),
    "question marks of three scripts": between("", "?？؟", "a"),
    "question marks and spaces": between("", "? ", "a"),
    "full stops": between("", ".", "a"),
    "ideographic stops": many("。"),
    "exclamations": many("! "),
    "points of a list": many("5. "),
    "line feeds": between("a", "\n", "b"),
    "carriage returns": many("\r"),
    "both line ends": many("\r\n"),
    "spaces": between("a", " ", "b"),
    "spaces after stops": between("a.", " ", "b"),
    "one long word": many("a"),
    "one long word and a number": between("", "a", "1"),
    "one long number": many("1"),
    "numbers": many("12 13 "),
    "decimals": many("1.2.3."),
    "signs within numbers": many("1-,1"),
    "signs that join": between("a", "_.,:/+@-", "1"),
    "currency signs": many("$€£¥"),
    "names": many("Ab, Cd "),
    "capital letters": many("A "),
    "words of decisions": many("agreeapprov "),
    "control characters": many("\x00\x1b"),
    "characters that turn the text": many("\u202e\u2066"),
    "half characters": many("\ud800"),
    "four bytes": many("\U0001f600"),
    "accents": between("e", "\u0301", "x"),
    "brackets": many('[{"'),
    "backslashes": many("\\"),
    "commas and letters": many("a,"),
    "letters without case": many("\u4e2d"),
}


def summary(text: str) -> Summary:
    return Summary("i", text, 1, 4, 0, 60_000, "m", 9, 70_000, ("1-a:1",))


def context(*messages: Message, summaries: list[Summary] | None = None) -> Context:
    for seq, message in enumerate(messages, 1):
        message.seq = seq
    return Context("s", summaries or [], list(messages), State(), len(messages), 1, len(messages), "1-a", 6)


def extract(text: str, previous: str | None = None) -> None:
    messages = [] if previous else [Message("user", text), Message("tool", text, tool_call_id="c")]
    before = replace_data(clean_text(previous or "")).strip()
    deque(compose(before, messages, 1_200), maxlen=0)


def late(text: str) -> Context:
    call = {"id": text, "function": {"name": text, "arguments": text}}
    return context(
        Message("tool", text, tool_call_id=text),
        Message("assistant", text, tool_calls=[call]),
        Message("user", [{"type": "tool_result", "tool_use_id": text, "content": [{"type": "text", "text": text}]}]),
    )


def render(text: str) -> None:
    info = SessionInfo("s", "1-a", 1, 1, 1, 1, 0, (), None, 0, 1, None)
    made = context(Message("user", text), summaries=[summary(text)])
    session_view.document(made, info, "n", "k", redact=False)
    # The time to print on a terminal depends on rich.
    made.summaries = [summary(text[:500])]
    session_view.show(Console(file=io.StringIO(), width=80), made, info, 5, "here", "k", False, False)


def context_of_everything(text: str) -> Context:
    """Return a context with the text in every place that a provider's view reads."""
    called = {"id": text, "function": {"name": text, "arguments": text}}
    urls = (text, f"data:image/png;base64,{text}", f"data:{text},{text}", f"https://{text[:200]}/{text}")
    images = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return context(
        Message("system", text),
        Message("assistant", text, tool_calls=[called]),
        Message("tool", text, tool_call_id=text),
        Message("user", [*images, {"type": text, "text": text}]),
        summaries=[summary(text)],
    )


def run_to_end(coroutine: Coroutine[Any, Any, object]) -> None:
    while True:
        try:
            coroutine.send(None)
        except StopIteration:
            return


READERS: dict[str, Callable[[str], object]] = {
    "clean_text": clean_text,
    "escape_tags": escape_tags,
    "shorten": lambda text: shorten(text, 300),
    "one_line": one_line,
    "speaker": lambda text: speaker(Message(text, name=text)),
    "pieces": lambda text: list(pieces(Message("assistant", text, tool_calls=[{"function": {"arguments": text}}]))),
    "render_message": lambda text: render_message(Message("user", text), 1 << 30),
    "render_message result": lambda text: render_message(Message("tool", {"a": [text]}, tool_call_id="c"), 1 << 30),  # type: ignore[arg-type]
    "split_transcript": lambda text: list(split_transcript([Message("user", text)] * 4, 60_000)),
    "a request": lambda text: Anthropic().body("m", [{"role": "user", "content": text}] * 4, 9),
    "extractive": extract,
    "learn_messages": lambda text: run_to_end(learn_messages(Sketch(), [Message("user", text)] * 4)),
    "restore_lost_facts": lambda text: run_to_end(restore_lost_facts(text, [Message("user", text)] * 2, text, 300)),
    "extractive, previous": lambda text: extract("", "x" + text),
    "Summary.to_openai": lambda text: summary(text).to_openai(),
    "Context.to_openai": lambda text: context(Message("user", text), summaries=[summary(text)]).to_openai(),
    "Context.to_anthropic": lambda text: context_of_everything(text).to_anthropic(),
    "Context.to_gemini": lambda text: context_of_everything(text).to_gemini(),
    "Context.to_responses": lambda text: context_of_everything(text).to_responses(),
    "Context.to_converse": lambda text: context_of_everything(text).to_converse(),
    "Context.to_openai, late": lambda text: late(text).to_openai(),
    "messages": lambda text: decode_messages([encode_message({"content": text, text: 1})[0] + STAMP], 1, "e"),
    "values": lambda text: decode_value(encode_value({text: [text]})),
    "session_view": render,
    "stems": lambda text: list(stems(text)),
    "replace_data": replace_data,
    "Context.to_openai, alternate": lambda text: context_of_everything(text).to_openai(alternate=True),
}


@pytest.fixture(scope="module", autouse=True)
def room() -> Iterator[None]:
    """Keep some megabytes of free memory in the process.

    Without them, each call may take a megabyte from the system and return it, which takes longer than the call itself.
    """
    taken = [bytes(31) for _ in range(300_000)]
    kept = taken[::4_000]
    del taken
    yield
    del kept


@pytest.fixture(autouse=True)
def no_collections() -> Iterator[None]:
    """Disable the garbage collector, which would also scan the objects that other tests have left."""
    gc.disable()
    yield
    gc.enable()


def cost_s(read: Callable[[Any], object], given: Any) -> float:
    """Return the CPU time of a call, averaged over enough calls for the clock; the lesser of two measurements."""

    def once(count: int) -> float:
        started_s = time.thread_time()
        for _ in range(count):
            read(given)
        return time.thread_time() - started_s

    count = 1
    while (took_s := once(count)) < 0.0002 and count < 64:
        count *= 4
    return (took_s if took_s > 0.1 else min(took_s, once(count))) / count


def least_growth(read: Callable[[Any], object], make: Callable[[int], Any], size: int, times: int) -> float:
    """Return how many times more a character of a text `times` as long costs. Ends as soon as that is little.

    Retries and takes the least times, since other processes may disturb a measurement. Each has a text of its own,
    because the heap of the process can make one of them slow.
    """
    long_s = short_s = math.inf
    for _ in range(12 if times == TIMES[0] else 2):
        long_s = min(long_s, cost_s(read, make(size * times)))
        short_s = min(short_s, max(cost_s(read, make(size)), 1e-9))
        if long_s / short_s <= MOST_EACH * times:
            break
    return long_s / short_s / times


def check_growth(name: str, read: Callable[[Any], object], make: Callable[[int], Any], size: int) -> None:
    """Assert linear growth of the CPU time with the text."""
    for times in TIMES:
        each = least_growth(read, make, size, times)
        if each <= MOST_EACH:
            break
        assert each < QUADRATIC_EACH, f"{name}: {times} times as much costs {each:.0f} times more a character"


def sample(makers: dict[str, T], first: int) -> list[tuple[str, T]]:
    """Return every seventh, beginning at a place of the reader's, or all of them in `make nightly`."""
    return list(makers.items()) if EVERYTHING else list(makers.items())[first % 7 :: 7]


def read_quadratically(text: str) -> None:
    for _ in text:
        for _ in text:
            pass


def read_slower_beyond_the_cache(text: str) -> None:
    for _ in range(20 if len(text) > LONG else 1):
        text.split("a")


@pytest.mark.nightly
def test_quadratic_growth_is_noticed_and_a_slower_cache_is_not() -> None:
    with pytest.raises(AssertionError, match="256 times as much"):
        check_growth("quadratic", read_quadratically, many("a"), 16)
    check_growth("beyond the cache", read_slower_beyond_the_cache, many("a"), LONG)


@pytest.mark.parametrize("reader", READERS)
def test_reading_any_text_takes_linear_time(reader: str) -> None:
    assert len(SHAPES) >= 30
    for name, shape in sample(SHAPES, list(READERS).index(reader)):
        check_growth(f"{reader}, {name}", READERS[reader], shape, LONG)


def call(*ids: str) -> Message:
    return Message(
        "assistant", None, tool_calls=[{"id": id, "function": {"name": "f", "arguments": "{}"}} for id in ids]
    )


def result(id: str) -> Message:
    return Message("tool", "x", tool_call_id=id)


# Each function makes about this many messages, calls or results.
HISTORIES: dict[str, Callable[[int], list[Message]]] = {
    "each result after the next call": lambda count: [
        message for at in range(count) for message in (call(f"c{at}"), result(f"c{at - 1}"))
    ],
    "all calls, then all results": lambda count: (
        [call(f"c{at}") for at in range(count)] + [result(f"c{at}") for at in range(count)]
    ),
    "all results in the wrong order": lambda count: (
        [call(f"c{at}") for at in range(count)] + [result(f"c{count - at}") for at in range(count)]
    ),
    "one call, the same result again and again": lambda count: [call("c"), *(result("c") for _ in range(count))],
    "one message with all calls": lambda count: [
        call(*map(str, range(count))),
        *(result(str(at)) for at in range(count)),
    ],
    "one message with one call many times": lambda count: [call(*["c"] * count), result("c"), Message("user", "x")],
    "results without calls": lambda count: [result(f"c{at}") for at in range(count)],
    "calls without results": lambda count: [call(f"c{at}") for at in range(count)],
    "results late by one": lambda count: [
        message for at in range(count) for message in (call(f"c{at}"), Message("user", "x"), result(f"c{at}"))
    ],
    "one message with all parts": lambda count: [
        call("c"),
        Message("user", [{"type": "tool_result", "tool_use_id": f"c{at}", "content": "x"} for at in range(count)]),
    ],
    "items": lambda count: [
        Message.from_openai({"type": kind, "call_id": f"c{at % 7}", "name": "f", "output": "x"})
        for at in range(count)
        for kind in ("function_call", "function_call_output", "function_call_output")
    ],
    "the oldest form": lambda count: [
        Message("assistant", None, function_call={"name": "f", "arguments": "{}"}) for _ in range(count)
    ],
    "one speaker": lambda count: [Message("user", "word " * 5) for _ in range(count)],
}

OVER_MESSAGES: dict[str, Callable[[list[Message]], object]] = {
    "links": links,
    "cut_before": lambda messages: cut_before(messages, len(messages) - 1),
    "cut_after": lambda messages: cut_after(messages, 1),
    "cut_after, with orphans": lambda messages: cut_after(messages, 1, keeps_orphans=True),
    "open_calls": lambda messages: open_calls(messages[: len(messages) // 2], messages),
    "extractive": lambda messages: deque(compose("", messages, 1_200), maxlen=0),
    "learn_messages": lambda messages: run_to_end(learn_messages(Sketch(), messages)),
    "narrow": lambda messages: narrow(context(*messages), len(messages) // 2, len(messages) - 1, 10**9),
    "Context.to_openai": lambda messages: context(*messages).to_openai(),
    "Context.to_anthropic": lambda messages: context(*messages).to_anthropic(),
    "Context.to_gemini": lambda messages: context(*messages).to_gemini(),
    "Context.to_responses": lambda messages: context(*messages).to_responses(),
    "Context.to_converse": lambda messages: context(*messages).to_converse(),
    "a request": lambda messages: Anthropic().body("m", [message.to_openai() for message in messages], 9),
    "split_transcript": lambda messages: list(split_transcript(messages, 10_000)),
}


@pytest.mark.parametrize("reader", OVER_MESSAGES)
def test_reading_any_history_takes_linear_time(reader: str) -> None:
    for name, history in sample(HISTORIES, list(OVER_MESSAGES).index(reader)):
        check_growth(f"{reader}, {name}", OVER_MESSAGES[reader], history, 75)
