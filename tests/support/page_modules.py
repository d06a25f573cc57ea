"""The modules of the page, one at a time: scripts that a test runs on a page."""

from __future__ import annotations

import re
from importlib.resources import files

from redismem.web.http.bundle import join_modules

STATIC = files("redismem.web") / "static"


def module(name: str, *names: str) -> str:
    """Return a script that makes the exports of a module of the page global."""
    texts = {each: (STATIC / f"{each}.js").read_text() for each in (name, *names)}
    exported = ", ".join(re.findall(r"^export function (\w+)", texts[name], re.MULTILINE))
    entry = f'import {{ {exported} }} from "./{name}.js";\nObject.assign(window, {{ {exported} }});'
    return join_modules(texts | {"entry": entry}, "entry")
