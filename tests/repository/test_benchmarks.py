"""Each benchmark runs, and prints the ratios it is there for. How large they are, no test decides.

Every run has two of them; that the others fit the package, mypy sees.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.benchmark_runs import run_benchmark as run
from support.claims import printed_by

from benchmarks.compare import verdict

ROOT = Path(__file__).parents[2]


@pytest.mark.nightly
def test_turns_gives_the_ratios_to_both_idioms_and_the_servers_cost() -> None:
    printed = run("benchmarks.turns", "--quick")
    for what in ("machine", "server", "python", "versions", "command"):
        assert re.search(rf"^{what} +\S", printed, re.MULTILINE)
    for concurrency in (1, 64):
        assert f"{concurrency} concurrent sessions" in printed
    # turns/s, client CPU, server CPU, round trips, bytes per message
    for other in ("careful", "bare"):
        assert len(re.findall(rf"redismem / redis-py, {other}(?: +x \d+\.\d\d){{5}}$", printed, re.MULTILINE)) == 2
    assert re.search(
        r"append_and_read to bare RPUSH \+ LRANGE: x \d+\.\d\d one write a call, x \d+\.\d\d blast", printed
    )


@pytest.mark.nightly
def test_pins_gives_the_ratios_to_sessions_without_them() -> None:
    printed = run("benchmarks.pins", "--quick")
    for pair in ("append, pinned / plain", "read, pinned / longer"):
        assert re.search(rf"^{pair}(?: +x \d+\.\d\d){{2}}$", printed, re.MULTILINE)


@pytest.mark.nightly
def test_tail_gives_the_ratio_to_a_bare_read_and_the_limit() -> None:
    printed = run("benchmarks.tail", "--quick")
    for count in (1, 20, 100):
        assert re.search(
            rf"^tail {count} / bare LRANGE {count}: x \d+\.\d\d; server CPU: [\d.]+ µs; limit: ", printed, re.M
        )
    assert re.search(r"^rewrite / bare LTRIM \+ RPUSH: x \d+\.\d\d$", printed, re.MULTILINE)


@pytest.mark.nightly
def test_start_gives_the_ratios_to_redis_py_and_the_peak() -> None:
    printed = run("benchmarks.start", "--quick")
    assert len(re.findall(r"^redismem / redis-py, (?:CPU )?time: x \d+\.\d\d; limit: ", printed, re.MULTILINE)) == 2
    assert re.search(r"^redismem, peak: [\d.]+ MiB; limit: ", printed, re.MULTILINE)


@pytest.mark.nightly
def test_live_gives_the_ratio_to_bare_pub_sub_and_the_time_of_a_stop() -> None:
    printed = run("benchmarks.live", "--quick")
    assert re.search(r"^p99, turns / bare pub/sub: x \d+\.\d\d; limit: ", printed, re.MULTILINE)
    assert re.search(r"^stop, p50: \d+\.\d ms; limit: ", printed, re.MULTILINE)


@pytest.mark.nightly
def test_beside_gives_the_ratio_to_a_pool_on_a_link_and_on_loopback() -> None:
    printed = run("benchmarks.beside", "--quick")
    label = r"^(?:link|loopback), beside .*: p99, lane / pool: x \d+\.\d\d; limit: "
    assert len(re.findall(label, printed, re.MULTILINE)) == 6


@pytest.mark.nightly
def test_tails_gives_the_percentiles_at_each_share_of_the_capacity() -> None:
    printed = run("benchmarks.tails", "--quick")
    row = r"^[124] processes, (?:50|80|120)% of [\d,]+ turns/s(?: +\d+\.\d){3} +[\d.]+% +[\d,]+$"
    assert len(re.findall(row, printed, re.MULTILINE)) == 6


@pytest.mark.nightly
def test_overload_gives_the_good_turns_of_each_side_and_loses_and_doubles_none() -> None:
    printed = run("benchmarks.overload", "--quick")
    for side in ("library", "fallback", "serve"):
        assert re.search(rf"^{side}, good turns to capacity: x \d\.\d\d; limit: ", printed, re.MULTILINE)
        assert f"\n{side}: 0 lost, 0 doubled, 0 refused but made; " in printed


@pytest.mark.nightly
def test_meaning_gives_the_bytes_and_the_time_by_dimensions() -> None:
    printed = run("benchmarks.meaning", "--quick")
    for dimensions in (0, 256, 1536):
        assert re.search(rf"^200 +{dimensions} +\d+ +\d+\.\d\d +\d+\.\d\d$", printed, re.MULTILINE)


@pytest.mark.nightly
def test_originals_gives_the_bytes_of_a_conversation_by_its_text() -> None:
    printed = run("benchmarks.originals", "--quick")
    for name in ("made up", "made up, dictionary", "friends"):
        assert re.search(rf"^{name} +320 +\d+(?: +x \d+\.\d{{3}}){{7}}$", printed, re.MULTILINE)
    for which in ("without", "with"):
        assert f"bytes in Redis to the raw text, {which} a dictionary: x 0." in printed


@pytest.mark.nightly
def test_evidence_is_given_by_budget_and_kind_of_question() -> None:
    printed = run("benchmarks.remembering", "--evidence", "--quick")
    recalls = [f"recall{embedder} {budget}" for embedder in ("", ", wordllama") for budget in (350, 700, 1400)]
    for method in (*recalls, "plain BM25 700", "wordllama alone 700"):
        for kind in ("fact", "in a month", "when", "all"):
            assert re.search(rf"^{kind} +{method} +\d+ +[01]\.\d{{3}} +[01]\.\d{{3}} +[\d,]+ +[\d,]+$", printed, re.M)


@pytest.mark.nightly
def test_recalling_gives_the_ratio_to_turns_without_and_the_longest_step() -> None:
    printed = run("benchmarks.recalling", "--quick")
    for what in ("turns", "append_and_read"):
        for which in ("with recall", "without"):
            assert re.search(rf"^{what} {which} +[\d,]+ +[\d,]+ +\d+\.\d +\d+\.\d$", printed, re.MULTILINE)
    assert re.search(r"turns per second with recall to those without: x \d\.\d\d", printed)
    assert re.search(r"longest step on the event loop: \d+\.\d ms", printed)


@pytest.mark.nightly
def test_long_recall_gives_what_is_found_and_the_time_before_and_after() -> None:
    printed = run("benchmarks.long_recall", "--quick")
    for length in ("500", "2,000"):
        for side in ("before", "after"):
            assert re.search(rf"^{length} +{side} +found +0 +\d+\.\d +\d+\.\d +\d+\.\d$", printed, re.MULTILINE)
        assert re.search(rf"^{length} +\d+ +found +0 +1 +\d+\.\d\d +\d+$", printed, re.MULTILINE)


@pytest.mark.nightly
def test_migration_gives_the_longest_time_without_an_answer_of_each_shard() -> None:
    printed = run("benchmarks.migration", "--quick")
    for batch in (10, 100):
        assert re.search(rf"^100 +{batch} +20\d(?: +\d+\.\d\d){{5}}$", printed, re.MULTILINE)
    assert re.search(
        r"^of 100: [\d,]+ sessions per second with 10 keys per batch, [\d,]+ .* 100 keys per batch$", printed, re.M
    )


@pytest.mark.nightly
def test_nodes_gives_the_ratios_of_a_cluster_and_of_replicas_that_confirm() -> None:
    printed = run("benchmarks.nodes", "--quick")
    for label in ("cluster of one", "three nodes, no cluster", "cluster of three", "the same, 64 a node"):
        assert re.search(rf"^{label} / one node(?: +x \d+\.\d\d){{4}}$", printed, re.MULTILINE)
    assert re.search(r"^cluster of three / three nodes, no cluster(?: +x \d+\.\d\d){4}$", printed, re.MULTILINE)
    assert re.search(r"^confirm=1 / not confirmed(?: +x \d+\.\d\d){4}$", printed, re.MULTILINE)
    assert re.search(r"^server CPU of a turn in a cluster of three: x \d+\.\d\d; limit", printed, re.MULTILINE)


@pytest.mark.nightly
def test_savers_gives_the_ratios_to_sqlite_and_the_bytes_of_a_step() -> None:
    printed = run("benchmarks.savers", "--quick")
    ratios = re.findall(r"at once, redismem / SQLite in a file: put x ([0-9.]+), .*bytes x ([0-9.]+)", printed)
    assert len(ratios) == 2
    assert all(float(number) > 0 for pair in ratios for number in pair)


@pytest.mark.nightly
def test_stores_gives_the_ratios_to_sqlite_for_one_for_many_and_for_batches() -> None:
    printed = run("benchmarks.stores", "--quick")
    assert len(re.findall(r"at once, redismem / SQLite in memory: put x [0-9.]+, .*CPU x [0-9.]+", printed)) == 2
    assert len(re.findall(r"^a batch of 1,000 puts, .*, redismem / SQLite in memory: ms x [0-9.]+", printed, re.M)) == 2


@pytest.mark.nightly
def test_project_gives_the_growth_of_each_question_and_the_ratio_to_a_file() -> None:
    printed = run("benchmarks.project", "--quick")
    assert len(re.findall(r" x \d+\.\d\d$", printed, re.MULTILINE)) >= 12
    assert len(re.findall(r"^(?:tasks of one person|one task changed) .* x \d+\.\d$", printed, re.MULTILINE)) == 4
    assert re.search(r"^bytes per item: [\d,]+ at a hundredth, [\d,]+ at full size$", printed, re.MULTILINE)
    assert re.search(r"^full size: of 100 scripts 95 take at most \d", printed, re.MULTILINE)


# Long enough that what the server's own buffers grow or shrink by meanwhile is little beside it.
SAID = "Wo ist mein Päckchen? " * 20_000


@pytest.fixture
def transcripts(tmp_path: Path) -> Path:
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": SAID},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "a"}]},
    ]
    file = tmp_path / "two.jsonl"
    file.write_text("".join(json.dumps({"session_id": f"s{n}", "messages": messages}) + "\n" for n in range(2)))
    return file


@pytest.mark.nightly
def test_memory_weighs_a_file(transcripts: Path) -> None:
    found = json.loads(run("benchmarks.memory", "--json", "--file", str(transcripts)))
    user, assistant = f'{{"role":"user","content":"{SAID}"}}', '{"role":"assistant","content":null,'
    raw = 2 * len((user + assistant + '"tool_calls":[{"id":"a"}]}').encode())
    assert (found["sessions"], found["messages"], found["raw_bytes"]) == (2, 4, raw)
    assert found["contents_bytes"] == 2 * len(SAID.encode())
    assert all(found["keys_bytes"][kind] > 0 for kind in ("messages", "state", "indexes"))
    assert 0.8 * sum(found["keys_bytes"].values()) <= found["used_memory_bytes"]
    assert found["ratio"] == found["used_memory_bytes"] / raw


@pytest.mark.nightly
def test_memory_prints_its_ratio() -> None:
    """The ratio is that of the transcripts, or of synthetic conversations if there are none; it says which."""
    printed = run("benchmarks.memory", "--quick")
    assert re.search(r"used_memory to raw text: x \d+\.\d{3}; limit: at most x 1\.5", printed)
    assert re.search(r"^texts +(airline\.jsonl|synthetic conversations)", printed, re.MULTILINE)


FIGURES = ("turns_per_s", "client_us", "server_us")


@pytest.mark.nightly
def test_compare_measures_the_checkout_against_itself(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    printed = run("benchmarks.compare", str(ROOT), "--quick", "--json", str(file))
    for side in ("this", "other"):
        assert re.search(rf"^{side} +{re.escape(str(ROOT))} \(", printed, re.MULTILINE)
    for row in ("other", "this", "this / other, of medians(?: +x)", "this / other, of pairs(?: +x)"):
        assert re.search(rf"^{row} +[\d,.]+", printed, re.MULTILINE)
    assert printed.endswith("too few rounds to tell a difference: at least 8\n")
    found = json.loads(file.read_text())
    for figure in FIGURES:
        this, other = ([row[figure] for row in found["rounds"][side]] for side in ("this", "other"))
        assert len(this) == len(other) == 3
        pairs = sorted(ours / theirs for ours, theirs in zip(this, other, strict=True))
        assert found["ratios"][figure]["of_pairs"] == pairs[1]
        assert found["ratios"][figure]["of_medians"] == sorted(this)[1] / sorted(other)[1]


@pytest.fixture
def slow_checkout(tmp_path: Path) -> Path:
    """A checkout without an environment, each of whose calls burns far more of the processor than a turn needs."""
    checkout = tmp_path / "slow"
    for folder in ("redismem", "lua"):
        shutil.copytree(ROOT / folder, checkout / folder, ignore=shutil.ignore_patterns("__pycache__"))
    with (checkout / "redismem" / "__init__.py").open("a") as package:
        package.write(
            "\nfrom redismem.session.session import Session\n"
            "_quick = Session.append_and_read\n"
            "async def _slow(self, *messages, **options):\n"
            "    sum(range(30_000))\n"
            "    return await _quick(self, *messages, **options)\n"
            "Session.append_and_read = _slow\n"
        )
    return checkout


@pytest.mark.nightly
def test_compare_measures_the_other_checkouts_code(slow_checkout: Path, tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    run("benchmarks.compare", str(slow_checkout), "--rounds", "2", "--turns", "512", "--json", str(file))
    found = json.loads(file.read_text())
    assert all(pair < 0.9 for pair in found["ratios"]["client_us"]["quartiles_of_pairs"])
    assert not list(slow_checkout.rglob("__pycache__"))


@pytest.mark.parametrize(
    ("figure", "higher_count", "rounds", "said"),
    [
        ("client_us", 13, 15, "SLOWER in 13 of 15 rounds, x 1.100"),
        ("client_us", 2, 15, "faster in 13 of 15 rounds, x 0.900"),
        ("client_us", 12, 15, "no difference that chance would not make; slower in 12 of 15 rounds"),
        ("turns_per_s", 8, 8, "faster in 8 of 8 rounds, x 1.100"),
        ("turns_per_s", 0, 8, "SLOWER in 8 of 8 rounds, x 0.900"),
        ("turns_per_s", 7, 8, "no difference that chance would not make; slower in 1 of 8 rounds"),
    ],
)
def test_compare_says_slower_when_chance_would_hardly_say_it(
    figure: str, higher_count: int, rounds: int, said: str
) -> None:
    assert verdict(figure, [1.1] * higher_count + [0.9] * (rounds - higher_count)) == said


@pytest.mark.nightly
def test_compare_refuses_what_is_no_checkout(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.compare", str(tmp_path)]
    refused = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert refused.returncode == 2
    assert f"there is no redismem in {tmp_path}" in refused.stderr


@pytest.mark.nightly
def test_http_gives_the_ratio_to_plain_fastapi_and_the_memory() -> None:
    printed = run("benchmarks.http", "--quick", "--requests", "200", "--streams", "20")
    assert re.search(r"^redismem / plain +x \d+\.\d\d; server CPU x \d+\.\d\d; limit: ", printed, re.MULTILINE)
    assert re.search(r"^p99 beside 20 streams: [\d.]+ -> [\d.]+ ms, x \d+\.\d\d; limit: ", printed, re.MULTILINE)
    assert re.search(r"^memory after 200 requests: [\d.]+ MiB -> [\d.]+ MiB$", printed, re.MULTILINE)


@pytest.mark.nightly
def test_remembering_gives_share_and_tokens_of_each_way(transcripts: Path, tmp_path: Path) -> None:
    """No figure is wanted of a short one but that everything holds the answers, and that all ways are there."""
    booked = {"name": "book_reservation", "arguments": '{"origin": "OSL", "destination": "KRK"}'}
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "function": booked}]}
    said = [{"role": ("user", "assistant")[at % 2], "content": f"Turn {at} is about gate {at}."} for at in range(30)]
    transcripts.write_text(json.dumps({"session_id": "s", "messages": [*said, call, *said]}) + "\n")
    file = tmp_path / "results.json"
    printed = run("benchmarks.remembering", "--quick", "--file", str(transcripts), "--json", str(file))
    found = json.loads(file.read_text())["conversations"]
    assert [each["conversation"] for each in found] == ["customer", "friends, en", "friends, zh"]
    for each in found:
        rows = {row["label"]: row for row in each["rows"]}
        assert len(rows) == 7
        assert rows["everything"]["share"] >= 0.95
        assert rows["default context"]["share"] > rows["random sentences"]["share"] or each["questions"] == 1
    for label in ("default context", "context with recall", "recall alone"):
        assert re.search(rf"^{label}: share \d\.\d{{3}} at [\d,]+ tokens, the mean; limits: ", printed, re.MULTILINE)
    assert printed_by("python -m benchmarks.remembering").search(printed)
    assert "without a customer's year" not in printed
