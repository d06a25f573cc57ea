"""The benchmarks of the lane run, and print the ratios they are there for. How large they are, no test decides."""

from __future__ import annotations

import importlib.util
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from support.benchmark_runs import run_benchmark
from support.claims import printed_by

from benchmarks import chart

ROOT = Path(__file__).parents[2]
AROUND = ("machine", "server", "python", "versions", "command", "cores", "load")


def run(*words: str) -> str:
    printed = run_benchmark(*words)
    for what in AROUND:
        assert re.search(rf"^{what} +\S", printed, re.MULTILINE)
    return printed


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "results.json"


@pytest.mark.nightly
def test_lane_gives_its_ratios_to_a_blast_and_to_one_get(file: Path) -> None:
    printed = run("benchmarks.lane", "--quick", "--json", str(file))
    assert re.search(r"^lane / blast: x \d\.\d\d; limit: at least x 0\.85", printed, re.MULTILINE)
    assert re.search(r"^client CPU: \d+\.\d µs; limit: at most 30 µs", printed, re.MULTILINE)
    assert re.search(r"^append_and_read / redis-py GET: x \d+\.\d\d; limit: at most x 1\.1", printed, re.MULTILINE)
    found = json.loads(file.read_text())
    assert all(found["concurrent_64"][side]["server_share"] > 0 for side in ("lane", "blast"))
    lone = found["concurrent_1"]
    assert lone["latency_ratio"] == lone["append_and_read_us"] / lone["get_us"]


@pytest.mark.nightly
def test_flat_gives_ratios_for_sessions_and_for_messages(file: Path) -> None:
    printed = run("benchmarks.flat", "--quick", "--json", str(file))
    for figure in ("wall", "client", "server"):
        assert re.search(rf"^10,000 sessions to 1,000 sessions, {figure}: x \d+\.\d\d; limit", printed, re.MULTILINE)
        assert re.search(rf"^2,000 messages ever to 20 messages ever, {figure}: x \d", printed, re.MULTILINE)
    few, many = json.loads(file.read_text())["sessions"]
    assert many["used_bytes"] > 2 * few["used_bytes"]


@pytest.mark.parametrize("name", ["peers", "turns"])
def test_the_charts_show_the_results_in_the_repository(name: str) -> None:
    """`python -m benchmarks.chart` draws them anew; benchmarks/README.md has the commands."""
    folder = ROOT / "benchmarks"
    result = json.loads((folder / "peers.json").read_text())
    drawn = chart.draw(result, libraries=name == "turns")
    assert drawn == (folder / f"{name}.svg").read_text()
    texts = [text.text for text in ET.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")]
    assert "26,343" in texts
    assert ("coredis, same scripts" in texts) == (name == "peers")


@pytest.mark.nightly
def test_peers_measures_what_is_installed_and_names_what_is_not(file: Path, tmp_path: Path) -> None:
    drawing = tmp_path / "peers.svg"
    printed = run("benchmarks.peers", "--quick", "--json", str(file), "--chart", str(drawing))
    found: dict[str, Any] = json.loads(file.read_text())
    measured = {row["label"]: row for row in found["rows"]}
    assert {"redismem, lane", "redismem, redis-py", "redis-py, careful"} <= set(measured)
    assert measured["redismem, lane"]["ratio"] == 1
    limit = r"^limit of Redis' core: [\d,]+ turns/s with these scripts; the lane reaches \d+% of it$"
    assert re.search(limit, printed, re.MULTILINE)
    assert printed_by("python -m benchmarks.peers").search(printed)
    for label, package in found["missing"].items():
        assert f"{label}: not measured, {package} is not installed" in printed
        assert importlib.util.find_spec(package.partition(".")[0]) is None
    texts = [text.text for text in ET.fromstring(drawing.read_text()).iter("{http://www.w3.org/2000/svg}text")]
    assert set(measured) <= set(texts)
