"""The types of providers' SDKs fit, both ways, for callers whose checker is strict: mypy's, and pyright's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SAMPLE = (ROOT / "tests" / "typed" / "sdk_types.py").read_text()
WRONG = {
    "a call of something else": ("append(own,", "append(5, own,"),
    "a list where a message is wanted": ("append_and_read(asked)", "append_and_read([asked])"),
    "another type of context": ("messages: list[ChatCompletionMessageParam] = context", "messages: int = context"),
    "keys that Anthropic's client does not take": ("**context.to_anthropic()", "**context.to_gemini()"),
}


def mypy(file: Path) -> list[str]:
    # A cache of its own, as others may be checking the same modules.
    words = ["mypy", "--strict", "--config-file=", f"--cache-dir={ROOT / '.mypy_cache' / 'typed'}", str(file)]
    done = subprocess.run([sys.executable, "-m", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return [line for line in done.stdout.splitlines() if ": error: " in line]


def pyright(file: Path) -> list[str]:
    config = {"include": [file.name], "typeCheckingMode": "strict", "extraPaths": [str(ROOT)]}
    (file.parent / "pyrightconfig.json").write_text(json.dumps(config))
    words = ["pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(file.parent)]
    done = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)
    assert found["summary"]["filesAnalyzed"] == 1
    return [each["message"] for each in found["generalDiagnostics"] if each["severity"] == "error"]


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_a_strict_checker_has_no_complaint_and_notices_what_is_wrong(tmp_path: Path, checker: object) -> None:
    """All at once, as most of the time goes into reading the SDKs."""
    assert callable(checker)
    file = tmp_path / "sample.py"
    file.write_text(SAMPLE)
    assert checker(file) == []
    text = SAMPLE
    for right, wrong in WRONG.values():
        assert right in text
        text = text.replace(right, wrong)
    file.write_text(text)
    assert len(checker(file)) >= len(WRONG)
