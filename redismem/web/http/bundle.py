"""Join the JavaScript modules of the page into one, so that a browser loads it with one request."""

from __future__ import annotations

import re
from collections.abc import Mapping

_IMPORT = re.compile(r'^import \{((?![^}]*\bas\b)[\w,\s]*)\} from "\./(\w+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:const|function\*?|class) (\w+))", re.MULTILINE)
_COMMENT = re.compile(r"^ *//.*\n", re.MULTILINE)
_OTHER = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)


def join_modules(texts: Mapping[str, str], entry: str) -> str:
    """Return one module that does what the module `entry` does, with everything that it imports.

    Each module becomes a function that runs once and returns its exports, after the modules that it imports. Lines of
    comment are left out, so no template literal may have a line that begins with `//`.

    Args:
        texts: The text of each module by its name, without the ending `.js`.

    Raises:
        ValueError: Modules import each other in a circle, or import or export in a form other than
            `import { a, b } from "./name.js"` and `export` before const, function or class.
        KeyError: A module imports a module that is not in `texts`.
    """
    joined: dict[str, str] = {}

    def add(name: str, importers: tuple[str, ...]) -> None:
        if name in importers:
            raise ValueError(f"modules import each other in a circle: {', '.join(importers)}")
        if name in joined:
            return
        for _, imported in _IMPORT.findall(texts[name]):
            add(imported, (*importers, name))
        joined[name] = _wrap(name, texts[name])

    add(entry, ())
    return "".join(joined.values())


def _wrap(name: str, text: str) -> str:
    """Return a module as a function. Raises ValueError."""
    exported = ", ".join(_EXPORT.findall(text))
    body = _EXPORT.sub("", _IMPORT.sub(r"const {\1} = $\2;", _COMMENT.sub("", text)))
    if (other := _OTHER.search(body)) or re.search(r"\bimport\(", body):
        raise ValueError(f"{name}.js: this import or export cannot be joined: {other[0] if other else 'import()'}")
    return f"const ${name} = (() => {{\n{body}\nreturn {{ {exported} }};\n}})();\n"
