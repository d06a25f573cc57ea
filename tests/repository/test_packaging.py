"""The wheel and the sdist contain the scripts, and work far from the checkout."""

import hashlib
import json
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from support.environments import APART

from redismem.protocol import scripts

ROOT = Path(__file__).parents[2]
LUA = {str(path.relative_to(ROOT)): path.read_bytes() for path in (ROOT / "lua").rglob("*.*")}
SCRIPTS = {name: hashlib.sha256(scripts.load(name).source).hexdigest() for name in scripts.names()}
LOCK = ROOT / "requirements.lock"

LOAD_ALL = """
import hashlib, json, redismem
from redismem.protocol import scripts
loaded = {name: hashlib.sha256(scripts.load(name).source).hexdigest() for name in scripts.names()}
print(json.dumps({"file": redismem.__file__, "loaded": loaded}))
"""


def run(*command: object, cwd: Path) -> str:
    """The output of a command that must succeed, in an environment that names neither checkout nor server."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "REDISMEM"))}
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def build(source: Path, into: Path, *targets: str) -> list[Path]:
    options = [word for target in targets for word in ("--target", target)]
    run(sys.executable, "-m", "hatchling", "build", "--directory", into, *options, cwd=source)
    return [next(into.glob("*.whl" if target == "wheel" else "*.tar.gz")) for target in targets]


def install(into: Path, *what: object) -> Path:
    """The Python of a new environment: it has `what`, sees the dependencies installed here, and no redismem.

    The line in the .pth file puts the other site-packages last, and no .pth file in there is read.
    """
    run(sys.executable, "-m", "venv", "--without-pip", into, cwd=into.parent)
    python = into / "bin" / "python"
    site = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=into).strip()
    (Path(site) / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    offline = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    run(sys.executable, "-m", "pip", "--python", python, "install", *offline, *what, cwd=into)
    return python


def assert_loads_every_script(python: Path, home: Path, cwd: Path) -> None:
    seen = json.loads(run(python, "-c", LOAD_ALL, cwd=cwd))
    assert Path(seen["file"]).is_relative_to(home)
    assert seen["loaded"] == SCRIPTS


def lua_in_wheel(wheel: Path) -> dict[str, bytes]:
    """The Lua files of a wheel, by their paths in the checkout."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if "lua/" in name]
        return {name.removeprefix("redismem/"): archive.read(name) for name in names}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any) -> Any:
    return tmp_path_factory.mktemp("packaging")


@pytest.fixture(scope="module")
def built(folder: Any) -> Any:
    """The wheel and the sdist, built from the checkout."""
    return build(ROOT, folder / "dist", "wheel", "sdist")


@pytest.fixture(scope="module")
def installed(folder: Any, built: Any) -> Any:
    """The Python of an environment with the wheel in it."""
    return install(folder / "wheel-env", built[0])


def test_the_wheel_carries_every_script_and_the_type_marker(built: Any) -> None:
    assert {"lua/session/append.lua", "lua/include/now.lua"} <= set(LUA)
    assert lua_in_wheel(built[0]) == LUA
    with zipfile.ZipFile(built[0]) as archive:
        assert {"redismem/py.typed", "redismem/formats/days.json"} <= set(archive.namelist())
        page = {path.name: path.read_bytes() for path in (ROOT / "redismem" / "web" / "static").iterdir()}
        assert {"index.html", "app.js", "page.css"} <= set(page)
        assert {name: archive.read(f"redismem/web/static/{name}") for name in page} == page
        assert {name.split("/")[0] for name in archive.namelist()} == {"redismem", "redismem-0.1.0.dist-info"}


@pytest.mark.nightly
def test_the_sdist_builds_the_same_wheel(built: Any, folder: Any) -> None:
    (folder / "sdist").mkdir()
    run("tar", "-xzf", built[1], cwd=folder / "sdist")
    (source,) = (folder / "sdist").iterdir()
    unpacked = {str(path.relative_to(source)): path.read_bytes() for path in (source / "lua").rglob("*.*")}
    assert unpacked == LUA
    (wheel,) = build(source, folder / "dist-of-sdist", "wheel")
    assert wheel.read_bytes() == built[0].read_bytes()


@pytest.mark.nightly  # `make release-check`, in each run of CI, plays the demo from an installed wheel
def test_an_installed_wheel_loads_every_script(installed: Any, folder: Any) -> None:
    assert_loads_every_script(installed, folder / "wheel-env", cwd=folder)


@pytest.mark.nightly
def test_an_installed_wheel_runs_the_demo(installed: Any, folder: Any) -> None:
    assert run(installed.with_name("redismem"), "demo", cwd=folder)
    assert run(installed, "-m", "redismem", "demo", cwd=folder)


@pytest.mark.nightly  # `make setup` makes such an install, and all tests run in it
def test_an_editable_install_loads_every_script(folder: Any) -> None:
    python = install(folder / "editable-env", "--editable", ROOT)
    assert_loads_every_script(python, ROOT / "redismem", cwd=folder)


def locked_requirements() -> list[tuple[Requirement, list[str]]]:
    """Each requirement of the lock with its hashes."""
    lines = re.sub(r"#.*", "", LOCK.read_text()).replace("\\\n", " ").splitlines()
    entries = [re.split(r"\s--hash=", line.strip()) for line in lines if line.strip()]
    return [(Requirement(entry[0]), entry[1:]) for entry in entries]


def test_the_lock_pins_everything_by_hash_and_names_no_address() -> None:
    assert "://" not in LOCK.read_text()
    for requirement, hashes in locked_requirements():
        assert re.fullmatch(r"==[^*,]+", str(requirement.specifier)), requirement
        assert hashes, requirement
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", value.strip()) for value in hashes), requirement


def test_the_lock_holds_what_the_project_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = project["dependency-groups"]
    asked = project["project"]["dependencies"] + groups["tests"]
    asked += [each for each in groups["dev"] if isinstance(each, str)]
    for extra, packages in project["project"]["optional-dependencies"].items():
        asked += packages if extra not in ("peers", *APART) else []
    pins = {canonicalize_name(each.name): next(iter(each.specifier)).version for each, _ in locked_requirements()}
    makefile = (ROOT / "Makefile").read_text()
    [(name, version)] = re.findall(r"^FROM_SOURCE := (.+)\nSOURCE := \$\(FROM_SOURCE\)==(.+?) ", makefile, re.MULTILINE)
    pins[name] = version
    for requirement in map(Requirement, asked):
        pin = pins.get(canonicalize_name(requirement.name))
        assert pin is not None, "run: make lock"
        assert pin in requirement.specifier, "run: make lock"
