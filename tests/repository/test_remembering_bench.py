"""The benchmarks of remembering run, and print the figures that the docs quote. How large they are, no test decides."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from unittest.mock import patch

import pytest
from support.benchmark_runs import run_benchmark as run

from benchmarks import curves
from benchmarks.mechanisms import floor_off, rules_off
from redismem import Message
from redismem.recall import bm25
from redismem.recall.postings import Postings
from redismem.text import sentences

ROOT = Path(__file__).parents[2]
FIGURE = r"[01]\.\d{3}"


@pytest.mark.nightly
def test_budgets_gives_the_words_by_split_and_the_evidence_by_budget(tmp_path: Path) -> None:
    file, drawing = tmp_path / "results.json", tmp_path / "curve.svg"
    printed = run("benchmarks.budgets", "--quick", "--json", str(file))
    for pair in (r"0 \+ 600", r"1,200 \+ 1,200", r"4,800 \+ 0", r"1,500 \+ 700", r"500 \+ 1,700"):
        assert re.search(rf"^{pair}(?: +{FIGURE}){{7}}$", printed, re.MULTILINE)
    for budget in ("100", "1,200", "4,000"):
        assert re.search(rf"^{budget}(?: +{FIGURE}){{7}}$", printed, re.MULTILINE)
    assert re.search(r"^mean evidence from 100 to 4,000 tokens, all questions: ", printed, re.MULTILINE)
    drawing.write_text(curves.draw(json.loads(file.read_text()), 2_400))
    assert len(ET.fromstring(drawing.read_text()).findall("{*}polyline")) == 6


@pytest.mark.nightly
def test_mechanisms_gives_each_figure_off_and_on() -> None:
    printed = run("benchmarks.mechanisms", "--quick")
    rules = [
        f"rules: {what}, evidence at {budget} tokens"
        for what in ("the rule", "other questions")
        for budget in (350, 700, "1,400")
    ]
    for label in (*rules, "rules: verbatim in the default context", "floor: questions, evidence at 700 tokens, busy"):
        assert re.search(rf"^{label} +{FIGURE} +{FIGURE}$", printed, re.MULTILINE)
    quoted = re.search(
        r"^floor: tokens quoted of 700 where a message asks nothing, busy +(\d+) +(\d+)$", printed, re.MULTILINE
    )
    assert quoted is not None
    assert int(quoted[1]) > int(quoted[2])


def tells_rule(text: str) -> bool:
    work = sentences.lines_of([Message("user", text)])
    try:
        while True:
            next(work)
    except StopIteration as done:
        lines: list[sentences.Line] = done.value
    return any(line.is_rule for line in lines)


def test_a_mechanism_is_off_within_its_switch_alone() -> None:
    rule, nothing = "Always answer in French.", bm25.Ranking("Thanks")
    many = Postings()
    with rules_off():
        assert not tells_rule(rule)
    assert tells_rule(rule)
    many.count = 200
    with patch.object(many, "usual_weight", lambda: 1.0):
        with floor_off():
            assert not nothing.asks_nothing({1: 1.0}, many)
        assert nothing.asks_nothing({1: 1.0}, many)


@pytest.mark.nightly
def test_ways_gives_the_figures_of_each_way_by_budget() -> None:
    printed = run("benchmarks.ways", "--quick")
    for budget in ("350", "700", "1,400"):
        for way in ("last messages", "plain BM25", "wordllama alone", "recall", "recall, wordllama"):
            assert re.search(rf"^{way}, {budget} +{FIGURE} +{FIGURE}(?: +[\d,]+){{3}} +0$", printed, re.MULTILINE)
        for way in ("summary alone", "half summary, half recall"):
            assert re.search(rf"^{way}, {budget} +{FIGURE}(?: +[\d,]+){{3}} +0$", printed, re.MULTILINE)


@pytest.mark.nightly
def test_pipelines_gives_the_price_of_each_that_is_published() -> None:
    printed = run("benchmarks.pipelines")
    row = r" +([\d,]+)(?: +[\d,]+){3} +\$(\d+\.\d\d) +\$(\d+\.\d\d)$"
    for name in ("Mem0", "LangMem", "Graphiti", "agent-memory-server"):
        found = re.search(rf"^{name} \d.*?{row}", printed, re.MULTILINE)
        assert found is not None
        assert float(found[2]) >= float(found[3]) > 0
    assert re.search(r"^redismem, by default +0 +0 +0 +0 +\$0\.00 +\$0\.00$", printed, re.MULTILINE)
