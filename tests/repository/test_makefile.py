"""make, as a newcomer meets it: what there is, what is missing, where the private Redis listens."""

import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import browser

ROOT = Path(__file__).parents[2]


def make(*words: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["make", *words], cwd=cwd, capture_output=True, text=True, check=False)


@pytest.fixture
def fresh(tmp_path: Path) -> Any:
    """A place where nothing is installed yet, so that a target can fail without harm."""
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def test_make_alone_lists_every_target_for_people() -> None:
    done = make()
    (targets,) = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert done.returncode == 0
    for_people = set(targets.split()) - {"have-redis", "have-chromium"}
    assert set(re.findall(r"^  make (\S+) +\S", done.stdout, re.MULTILINE)) == for_people


def test_an_old_python_is_refused_with_a_remedy(fresh: Any) -> None:
    old = fresh / "python3.9"
    old.write_text('#!/bin/sh\n[ "$1" = -V ] && echo Python 3.9.1\nexit 1\n')
    old.chmod(0o755)
    done = make("setup", f"PYTHON={old}", cwd=fresh)
    assert done.returncode != 0
    assert "Python 3.11 or newer is needed" in done.stderr
    assert "Python 3.9.1" in done.stderr
    assert not (fresh / ".venv").exists()


def test_a_missing_python_is_named(fresh: Any) -> None:
    done = make("setup", "PYTHON=no-such-python", cwd=fresh)
    assert done.returncode != 0
    assert "There is no no-such-python here" in done.stderr


@pytest.mark.parametrize(("ci", "code"), [("", 0), ("true", 1)])
def test_a_chromium_that_cannot_be_installed_is_told_and_fails_where_all_must_run(ci: str, code: int) -> None:
    program = [sys.executable, str(ROOT / ".ci" / "chromium.py")]
    done = subprocess.run(program, env={"PATH": "", "CI": ci}, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert "Chromium is missing, and only you can install it here" in done.stderr
    assert ("The tests of the page will be skipped." in done.stderr) is (code == 0)


def test_without_a_browser_its_tests_are_skipped_and_never_silently_green(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="make have-chromium"):
        browser.chromium()
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="make have-chromium"):
        browser.chromium()


@pytest.mark.skipif(shutil.which("redis-server") is None, reason="needs redis-server")
def test_the_private_redis_is_durable_and_leaves_nothing_behind() -> None:
    program = [sys.executable, str(ROOT / ".ci" / "redis_server.py"), "run"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as private:
        assert private.stdout is not None
        try:
            urls = (re.search(r"redis://127\.0\.0\.1:(\d+)/0", line) for line in private.stdout)
            port = int(next(filter(None, urls))[1])
            with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
                connection.sendall(b"CONFIG GET dir\r\nCONFIG GET appendonly\r\n")
                connection.sendall(b"CONFIG GET maxmemory-policy\r\nQUIT\r\n")
                words = connection.makefile().read().split()
        finally:
            private.send_signal(signal.SIGTERM)
    assert words[words.index("appendonly") + 2] == "yes"
    assert words[words.index("maxmemory-policy") + 2] == "noeviction"
    assert private.returncode == 0
    assert not Path(words[words.index("dir") + 2]).exists()
