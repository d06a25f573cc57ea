"""The README is short and true: its turn and its claims run. The table of settings in docs/ is the settings'."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.claims import printed_by
from support.redis_server import RedisServer

from benchmarks.remembering import LIMITS
from redismem import Settings
from redismem.blocking.memory import Memory
from redismem.cli import main

ROOT = Path(__file__).parents[2]
README_LINES, CLAIMS_COUNT = 120, 7
MEASURED = ("default context", "recall alone", "context with recall")


def table() -> str:
    lines = ["| variable | default | meaning |", "|---|---|---|"]
    for name, field in Settings.model_fields.items():
        default = "" if field.default is None else f"`{field.default}`"
        lines.append(f"| `REDISMEM_{name.upper()}` | {default} | {field.description} |")
    return "\n".join(lines)


def test_the_table_of_settings_is_complete() -> None:
    page = (ROOT / "docs" / "settings.md").read_text()
    shown = page.partition("<!-- settings -->\n")[2].partition("\n<!-- /settings -->")[0]
    assert shown == table(), f"put this into docs/settings.md:\n{table()}"


def quickstart() -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "quickstart.md").read_text(), re.DOTALL)


def retried_turn() -> str:
    return quickstart()[0]


def claims_without_a_command(page: str) -> Iterator[str]:
    """Yield the bullets of the README without a check, or whose check names a test that does not exist."""
    tests = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"\bdef (test_\w+)", path.read_text())
    }
    for bullet in re.findall(r"^- \*\*(.*?)(?=\n- |\n\n)", page, re.MULTILINE | re.DOTALL):
        command = re.search(r"Check:\s+`((?:make|redismem|python -m benchmarks\.)[^`]+)`", bullet)
        if command is None or not tests.issuperset(re.findall(r"test_\w+", command[1])):
            yield bullet


def test_the_readme_is_short_and_each_claim_has_its_command() -> None:
    page = (ROOT / "README.md").read_text()
    assert len(page.splitlines()) <= README_LINES
    assert page.count("\n- **") == CLAIMS_COUNT
    assert list(claims_without_a_command(page)) == []
    share, tokens = re.findall(r"`default context: share ([\d.]+) at ([\d,]+) tokens, the mean`", page)[0]
    (row,) = re.findall(r"^\| the mean of the friends.*", (ROOT / "benchmarks/README.md").read_text(), re.MULTILINE)
    means = dict(zip(MEASURED, re.findall(r"([\d,]+): \*\*([\d.]+)\*\*", row), strict=False))
    assert means["default context"] == (tokens, share)
    for way, (least, most) in LIMITS.items():
        assert (int(means[way][0].replace(",", "")) <= most, float(means[way][1]) >= least) == (True, True)
    wrong = page.replace("`make model`", "").replace("test_every_provider_accepts_it", "test_no_provider_accepts_it")
    assert [bullet[:9] for bullet in claims_without_a_command(wrong)] == ["No messag", "Every pro"]


def test_the_first_turn_works_as_it_stands(redis_server: RedisServer, tmp_path: Path) -> None:
    page = (ROOT / "README.md").read_text()
    script = tmp_path / "first_turn.py"
    script.write_text(re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0])
    without = {name: value for name, value in os.environ.items() if name != "REDISMEM_URL"}
    embedded = subprocess.run([sys.executable, script], env=without, capture_output=True, text=True, check=True)
    (shown,) = re.findall(r"^\$ python turn\.py\n(.*?)```", page, re.MULTILINE | re.DOTALL)
    assert embedded.stderr + embedded.stdout == shown
    here = without | {"REDISMEM_URL": redis_server.url}
    ran = subprocess.run([sys.executable, script], env=here, capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == (embedded.stdout, "")
    with Memory.connect(redis_server.url, namespace="shop") as memory:
        session = memory.session("user-42")
        assert [message.content for message in session.messages()] == ["Where is my order?", ran.stdout.strip()]
        session.clear()


def test_a_turn_may_be_retried_and_a_person_listed_as_the_quickstart_says(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    script = tmp_path / "again.py"
    (listing,) = (block for block in quickstart() if "newest=True" in block)
    script.write_text(
        f"""import asyncio
{retried_turn()}
async def main() -> None:
    async with Memory.connect(namespace="again") as memory:
        print(await answer(memory, "t1", "hello"), await answer(memory, "t1", "hello"), sep="; ")
        print(*[message.content for message in await memory.session("user-42").messages()], sep="; ")
{textwrap.indent(listing.replace("connect()", 'connect(namespace="again")'), "    ")}
asyncio.run(main())
"""
    )
    here = os.environ | {"REDISMEM_URL": redis_server.url}
    ran = subprocess.run([sys.executable, script], env=here, capture_output=True, text=True, check=True)
    told = "You asked: hello; You asked: hello\nhello; You asked: hello\n"
    hotel = "Find me a hotel in Oslo"
    assert ran.stdout == f"{told}{[('ada-1', 'A trip to Oslo', hotel)]}\n{[hotel]}\n"


def test_forgetting_prints_its_proof_as_the_readme_shows_it(
    redis_server: RedisServer, capsys: pytest.CaptureFixture[str]
) -> None:
    with Memory.connect(redis_server.url, namespace="shop") as memory:
        memory.session("s-17", owner="customer-17").append({"role": "user", "content": "Where is my order?"})
    assert main(["remove", "owner", "customer-17", "--yes", "--namespace", "shop", "--url", redis_server.url]) == 0
    assert printed_by("redismem remove owner").search(capsys.readouterr().out)


@pytest.mark.nightly
def test_the_turns_pass_a_strict_checker(tmp_path: Path) -> None:
    (first,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (tmp_path / "first.py").write_text(first)
    (tmp_path / "again.py").write_text(retried_turn())
    (tmp_path / "wrong.py").write_text(retried_turn().replace("list[dict[str, Any]]", "list[dict]"))
    words = ["mypy", "--strict", "--config-file=", f"--cache-dir={ROOT / '.mypy_cache' / 'readme'}"]
    files = ["first.py", "again.py", "wrong.py"]
    done = subprocess.run(
        [sys.executable, "-m", *words, *files], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert len(errors) == 1, done.stdout
    assert errors[0].startswith("wrong.py:")


def test_the_readme_names_every_extra() -> None:
    (line,) = re.findall(r"^Extras add the rest: (.*?), and one per", (ROOT / "README.md").read_text(), re.MULTILINE)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    frameworks = {page.stem for page in (ROOT / "docs" / "adapters").glob("*.md")} - {"import"}
    assert {*re.findall(r"`(.+?)`", line)} == extras.keys() - frameworks - {"peers"}


def test_the_address_that_the_readme_names_is_the_one_that_compose_opens() -> None:
    """Without Docker the line exports nothing, so no turn waits for a Redis that is not there."""
    line = r"^docker compose up --wait redis && export REDISMEM_URL=redis://127\.0\.0\.1:(\d+)/0$"
    (port,) = re.findall(line, (ROOT / "README.md").read_text(), re.MULTILINE)
    assert f'"127.0.0.1:{port}:{port}"' in (ROOT / "docker-compose.yml").read_text()
