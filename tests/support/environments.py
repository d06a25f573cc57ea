"""Environments with some of the installed packages: links to them, so that nothing is downloaded or compiled again."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
from functools import cache
from importlib.metadata import distribution, distributions
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
APART = re.findall(r"^APART := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[0].split()
"""The extras whose frameworks need an environment of their own: `make apart` installs and tests them."""
VISITS = Path(__file__).with_name("visits.py")


def closure(extras: set[str]) -> set[str]:
    """Return the names of the distributions that redismem with these extras installs, itself included."""
    seen, waiting = set[tuple[str, str]](), [("redismem", extra) for extra in ("", *extras)]
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        for requirement in map(Requirement, distribution(name).requires or ()):
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                waiting += [(canonicalize_name(requirement.name), more) for more in ("", *requirement.extras)]
    return {name for name, _ in seen}


@cache
def installed_tree() -> dict[str, dict[str, set[str]]]:
    """Return the entries of each folder of the installed packages, and the distributions that have files in each."""
    tree: dict[str, dict[str, set[str]]] = {}
    for each in distributions():
        name = canonicalize_name(each.name)
        for line in (each.read_text("RECORD") or "").splitlines():
            place = line.rsplit(",", 2)[0].strip('"')
            while place and not place.startswith(".."):
                folder = place.rpartition("/")[0]
                entries = tree.setdefault(folder, {})
                if name in entries.setdefault(place, set()):
                    break
                entries[place].add(name)
                place = folder
    return tree


def link_environment(into: Path, extras: set[str]) -> None:
    """Fill a folder with links to all that redismem with these extras installs, and to the checkout."""
    names, waiting = closure(extras), [""]
    site = Path(sysconfig.get_path("purelib"))
    while waiting:
        folder = waiting.pop()
        (into / folder).mkdir()
        for place, owners in installed_tree()[folder].items():
            if owners <= names:
                (into / place).symlink_to(site / place)
            elif owners & names:
                waiting.append(place)  # several distributions share it, such as `google`
    for name in ("redismem", "lua"):
        (into / name).unlink(missing_ok=True)
        (into / name).symlink_to(ROOT / name)


def visit_all(python: list[str], folder: Path, url: str, **environment: str) -> Any:
    """Run support/visits.py with a Python, and return what it found."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [*python, str(VISITS), url, str(folder)]
    ran = subprocess.run(command, env=clean | environment, cwd=folder, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def visit_linked(folder: Path, extras: set[str], url: str) -> Any:
    """Visit everything in an environment of links."""
    site = folder / "site"
    link_environment(site, extras)
    # Without `site`, the installed packages are not on the path.
    return visit_all([sys.executable, "-S"], folder, url, PYTHONPATH=str(site), PYTHONNOUSERSITE="1", COLUMNS="500")
