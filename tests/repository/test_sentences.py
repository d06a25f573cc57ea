"""The pages that newcomers read have short sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FIRST = [ROOT / "README.md", ROOT / "docs" / "quickstart.md", ROOT / "docs" / "turns.md"]
PAGES = [*FIRST, *sorted((ROOT / "docs" / "howto").glob("*.md"))]
MEAN_WORDS, MOST_WORDS = 18, 35


def sentences(page: str) -> Iterator[str]:
    """Yield the sentences of a page, without code, tables and addresses of links."""
    text = re.sub(r"^```.*?^```|^[|#].*?$", "", page, flags=re.MULTILINE | re.DOTALL)
    for block in re.split(r"\n\s*\n|\n(?=- )", re.sub(r"\]\([^)]*\)", "]", text)):
        yield from filter(None, re.split(r"(?<=[.:;?!]) (?=[A-Z`*\[(])", " ".join(block.removeprefix("- ").split())))


def faults(page: str) -> Iterator[str]:
    """Yield each sentence that is too long, and the mean if it is too high."""
    counts = [(sentence, len(re.findall(r"[\w'./-]+", sentence))) for sentence in sentences(page)]
    yield from (sentence for sentence, count in counts if count > MOST_WORDS)
    mean = sum(count for _, count in counts) / len(counts)
    if mean > MEAN_WORDS:
        yield f"{mean:.1f} words per sentence"


def test_the_pages_of_newcomers_have_short_sentences() -> None:
    assert {page.name: list(faults(page.read_text())) for page in PAGES} == {page.name: [] for page in PAGES}
    short, long = "It works. ", f"{'word ' * 36}ends."
    assert list(faults(f"# A head\n\n{short * 19}\n\n- {long}\n\n```text\n{long}\n```\n")) == [long]
    assert list(faults(f"{'word ' * 19}ends.")) == ["20.0 words per sentence"]
