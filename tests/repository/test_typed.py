"""The types of providers' SDKs fit, both ways, for callers whose checker is strict: mypy's, and pyright's."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SAMPLE = (ROOT / "tests" / "typed" / "sdk_types.py").read_text()
FILES = ["right.py", "wrong.py"]
WRONG = {
    "a call of something else": ("append(own,", "append(5, own,"),
    "a list where a message is wanted": ("append_and_read(asked)", "append_and_read([asked])"),
    "another type of context": ("messages: list[ChatCompletionMessageParam] = context", "messages: int = context"),
    "keys that Anthropic's client does not take": ("**context.to_anthropic()", "**context.to_gemini()"),
}


def mypy(folder: Path) -> dict[str, list[str]]:
    # A cache of its own, as others may be checking the same modules.
    words = ["mypy", "--strict", "--config-file=", f"--cache-dir={ROOT / '.mypy_cache' / 'typed'}", *FILES]
    done = subprocess.run([sys.executable, "-m", *words], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    found = [line.split(":", 1) for line in done.stdout.splitlines() if ": error: " in line]
    return {name: [rest for file, rest in found if file == name] for name in FILES}


def pyright(folder: Path) -> dict[str, list[str]]:
    config = {"include": FILES, "typeCheckingMode": "strict", "extraPaths": [str(ROOT)]}
    (folder / "pyrightconfig.json").write_text(json.dumps(config))
    words = ["pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(folder)]
    done = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, check=False)
    told = json.loads(done.stdout)
    assert told["summary"]["filesAnalyzed"] == len(FILES)
    found = [each for each in told["generalDiagnostics"] if each["severity"] == "error"]
    return {name: [each["message"] for each in found if Path(each["file"]).name == name] for name in FILES}


@pytest.mark.nightly  # in each run `make types` reads the same sample, which is strict
@pytest.mark.parametrize("checker", [mypy, pyright])
def test_a_strict_checker_has_no_complaint_and_notices_what_is_wrong(
    tmp_path: Path, checker: Callable[[Path], dict[str, list[str]]]
) -> None:
    """Both at once, as most of the time goes into reading the SDKs."""
    wrong = SAMPLE
    for is_right, is_wrong in WRONG.values():
        assert is_right in wrong
        wrong = wrong.replace(is_right, is_wrong)
    for name, text in zip(FILES, (SAMPLE, wrong), strict=True):
        (tmp_path / name).write_text(text)
    found = checker(tmp_path)
    assert found["right.py"] == []
    assert len(found["wrong.py"]) >= len(WRONG)
