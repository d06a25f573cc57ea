"""Write docs/api.md, the Python reference, from the docstrings of the package: `make api`.

With `--check`, write nothing, and exit with 1 if the page is not current.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import re
import sys
import textwrap
import types
import unittest.mock
from collections.abc import Iterator
from enum import Enum
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from redismem.settings import Settings

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "api.md"
# The public modules, each with its public names; an empty tuple means `__all__`.
MODULES: dict[str, tuple[str, ...]] = {
    "redismem": (),
    "redismem.errors": ("ModelFailed", "ProviderUnavailable"),
    "redismem.blocking": (),
    "redismem.settings": (),
    "redismem.session": (),
    "redismem.record": (),
    "redismem.messages": (),
    "redismem.models": (),
    "redismem.models.streaming": ("StreamingModel", "open_streaming"),
    "redismem.events": ("Event", "OnEvent", "Op"),
    "redismem.workers": (),
    "redismem.workers.archive": ("JsonlArchive", "read_archive"),
    "redismem.workers.summaries": ("Worker",),
    "redismem.workers.eviction": ("Eviction",),
    "redismem.metrics": (),
    "redismem.slots": ("Intent", "Slot", "Slots"),
    "redismem.mcp": (),
    "redismem.adapters.openai_agents": ("Session",),
    "redismem.adapters.agent_framework": ("CheckpointStorage", "HistoryProvider", "SessionStore"),
    "redismem.adapters.llama_index": ("ChatStore",),
    "redismem.adapters.pydantic_ai": ("ConversationStore", "EntryId"),
    "redismem.adapters.strands": ("Storage",),
    "redismem.adapters.claude_agent_sdk": ("SessionStore",),
    "redismem.adapters.a2a": ("TaskStore", "VersionedTaskStore", "TaskEventStream", "PushNotificationConfigStore"),
    "redismem.adapters.google_adk": ("MemoryService", "SessionService"),
    "redismem.adapters.langchain": ("ChatMessageHistory",),
    "redismem.adapters.langgraph": (),
    "redismem.adapters.crewai": ("FlowPersistence",),
    "redismem.adapters.chainlit": ("DataLayer",),
}
# Adapters whose frameworks need an environment of their own: where one is missing, a stand-in takes its place.
APART = {"redismem.adapters.crewai": "crewai", "redismem.adapters.chainlit": "chainlit"}
# Names without an underscore that only other modules of the package use.
INTERNAL = {
    "Change": {"checks", "encode"},
    "Context": {"is_mixed"},
    "Eviction": {"enforce_limit", "is_crowded", "queue_excess", "queue_idle"},
    "JsonlArchive": {"reset"},
    "Message": {"mark_replaced", "restored", "with_pin"},
    "Metrics": {"operations", "render"},
    "Record": {"keys"},
    "Scheduler": {"appended"},
    "Summary": {"decode", "encode"},
    "Worker": {"attend", "is_crowded", "stand_by"},
}
FIRST = ("Memory", "Session", "Message", "Context")
HEAD = """# The Python reference

<!-- `make api` writes this page from the docstrings. Change them, not this page. -->

Every public module and name. Names that are not listed here may change in any release. Attributes without a leading
underscore are public, and so are objects that a public call returns. Some have their own pages: [projects](project.md),
the [HTTP API](http.md), the [settings](settings.md) and [the keys in Redis](../lua/README.md).

In this reference, *await* marks methods that are coroutines. `redismem.blocking` has the same methods without it.
`= ...` marks an option without a default value: left out, it changes nothing and demands nothing.
"""


def render() -> str:
    """Return the text of the page."""
    shown: dict[int, str] = {}
    return "\n".join([HEAD, *(_module(name, names, shown) for name, names in MODULES.items())]).rstrip() + "\n"


def _module(name: str, given: tuple[str, ...], shown: dict[int, str]) -> str:
    module = load(name)
    names = sorted(given or module.__all__, key=lambda each: _order(each, getattr(module, each)))
    new = {each: value for each in names if id(value := getattr(module, each)) not in shown}
    lines = [f"## `{name}`", "", f"{_summary(module.__doc__ or '')}.", "", "| name | what it is |", "|---|---|"]
    for each in names:
        value = getattr(module, each)
        first = shown.setdefault(id(value), name)
        lines.append(f"| `{each}` | {_row(module, each) if each in new else f'see [`{first}`](#{first})'} |")
    for each, value in new.items():
        if inspect.isclass(value) and name != "redismem.blocking":
            lines += ["", *_class(each, value)]
        elif inspect.isfunction(value):
            lines += ["", f"### `{each}`", "", *_function(each, value)]
    return "\n".join(lines) + "\n"


def load(name: str) -> types.ModuleType:
    """Import a public module."""
    framework = APART.get(name, "redismem")
    if importlib.util.find_spec(framework) is not None:
        return importlib.import_module(name)
    finder = StandIns(framework)
    sys.meta_path.append(finder)
    try:
        with unittest.mock.patch("redismem.settings.extras.require_extra"):
            return importlib.import_module(name)
    finally:
        sys.meta_path.remove(finder)
        for each in [each for each in sys.modules if each.partition(".")[0] == framework]:
            del sys.modules[each]


class StandIn:
    """The base class, the type or the decorator of a framework that is not installed."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __call__(self, method: Any) -> Any:
        return method


class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules of a framework that is not installed. Each name in them is a `StandIn`."""

    def __init__(self, framework: str) -> None:
        self._framework = framework

    def find_spec(self, name: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        """Return a spec for the framework's modules alone."""
        del path, target
        mine = name.partition(".")[0] == self._framework
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if mine else None

    def exec_module(self, module: types.ModuleType) -> None:
        """Give the module every name."""
        module.__getattr__ = lambda name: type(name, (StandIn,), {})  # type: ignore[method-assign]


def _order(name: str, value: object) -> tuple[bool, int, str]:
    """Put the entry points first, and the errors last."""
    is_error = inspect.isclass(value) and issubclass(value, Exception)
    return is_error, FIRST.index(name) if name in FIRST else len(FIRST), name


def _row(module: types.ModuleType, name: str) -> str:
    value = getattr(module, name)
    if inspect.isclass(value) or inspect.isfunction(value):
        return _summary(value.__doc__ or "")
    homes = [module, *(home for key, home in [*sys.modules.items()] if key.startswith("redismem."))]
    return _summary(next(docs[name] for home in homes if name in (docs := _constant_docs(home))))


@cache
def _constant_docs(module: types.ModuleType) -> dict[str, str]:
    return _docs_below(ast.parse(inspect.getsource(module)).body)


def _docs_below(body: list[ast.stmt]) -> dict[str, str]:
    """Return the string below each assignment."""
    docs = {}
    for one, below in pairwise(body):
        targets = one.targets if isinstance(one, ast.Assign) else [one.target] if isinstance(one, ast.AnnAssign) else []
        match below:
            case ast.Expr(value=ast.Constant(value=str(text))):
                docs |= {ast.unparse(target): inspect.cleandoc(text) for target in targets}
    return docs


def _summary(docstring: str) -> str:
    """Return the first sentence of a docstring, on one line."""
    paragraph = _cell(inspect.cleandoc(docstring).partition("\n\n")[0])
    return re.split(r"(?<=[.:]) (?=[A-Z])", paragraph)[0].rstrip(".:")


def _class(name: str, value: type) -> Iterator[str]:
    yield from (f"### `{name}`", "", *_text(value.__doc__ or ""))
    if issubclass(value, Enum):
        return
    if issubclass(value, Settings):
        yield from ("", "| setting | default | what it is |", "|---|---|---|", *_settings(value))
        return
    attributes = [*_attributes(value)]
    if any(default for _, default, _ in attributes):
        yield from ("", "| attribute | default | what it is |", "|---|---|---|")
        yield from (f"| `{attribute}` | {default} | {text} |" for attribute, default, text in attributes)
    elif attributes:
        yield from ("", "| attribute | what it is |", "|---|---|")
        yield from (f"| `{attribute}` | {text} |" for attribute, _, text in attributes)
    constructor = value.__init__
    if "Args:" in (constructor.__doc__ or "") and constructor.__module__.startswith("redismem.adapters."):
        yield from ("", *_function(name, constructor))
    for method, function in _methods(value):
        yield from ("", f"#### `{name}.{method}`", "", *_function(method, function))


def _settings(value: type[Settings]) -> Iterator[str]:
    for name, field in value.model_fields.items():
        yield f"| `{name}` | `{field.default!r}` | {_cell(field.description or '')} |"


def _bases(value: type) -> list[type]:
    """Return the class and its bases in the package, without those that the page has by themselves."""
    bases = [base for base in value.__mro__ if base.__module__.split(".")[0] == "redismem"]
    listed = {name for names in MODULES.values() for name in names} | {"Summarizer"}
    return [base for base in bases if base is value or base.__name__ not in listed]


def _attributes(value: type) -> Iterator[tuple[str, str, str]]:
    """Yield the annotated attributes and the properties of a class, each with its default and its text."""
    for base in _bases(value):
        (tree,) = (node for node in ast.parse(textwrap.dedent(inspect.getsource(base))).body)
        assert isinstance(tree, ast.ClassDef)
        docs = _docs_below(tree.body)
        for node in tree.body:
            match node:
                case ast.AnnAssign(target=ast.Name(id=attribute)) if _is_public(value, attribute):
                    text = docs.get(attribute, f"`{ast.unparse(node.annotation)}`")
                    yield attribute, _default(value, attribute), _cell(text)
                case ast.FunctionDef(name=attribute) if _is_public(value, attribute) and _is_property(node):
                    yield attribute, "", _cell(ast.get_docstring(node) or "")


def _default(value: type, name: str) -> str:
    """Return the value that an attribute has if the constructor gets none, or ""."""
    parameter = inspect.signature(value).parameters.get(name)
    if parameter is None or parameter.default is parameter.empty:
        return ""
    made = getattr(value, "__dataclass_fields__", {}).get(name)
    is_made = made is not None and made.default_factory is not dataclasses.MISSING
    return f"`{made.default_factory() if is_made else parameter.default!r}`".replace("|", "\\|")


def _is_public(value: type, name: str) -> bool:
    return name[0] != "_" and name not in INTERNAL.get(value.__name__, ())


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _is_property(node: ast.FunctionDef) -> bool:
    return any("property" in ast.unparse(each) for each in node.decorator_list)


def _methods(value: type) -> Iterator[tuple[str, Any]]:
    seen: set[str] = set()
    for base in _bases(value):
        for name, function in vars(base).items():
            function = function.__func__ if isinstance(function, (classmethod, staticmethod)) else function
            if _is_public(value, name) and inspect.isfunction(function) and function.__doc__ and name not in seen:
                seen.add(name)
                yield name, function


def _function(name: str, function: Any) -> list[str]:
    is_async = inspect.iscoroutinefunction(function)
    return ["```text", *_signature(f"{'await ' * is_async}{name}", function), "```", "", *_text(function.__doc__ or "")]


def _signature(head: str, function: Any) -> list[str]:
    signature = inspect.signature(function)
    parts, is_keyword = [], False
    for one in signature.parameters.values():
        if one.name in ("self", "cls") or one.annotation == "Never":
            continue
        if one.kind is one.KEYWORD_ONLY and not is_keyword and "*" not in "".join(part[:1] for part in parts):
            parts.append("*")
        is_keyword = is_keyword or one.kind is one.KEYWORD_ONLY
        options = re.fullmatch(r"Unpack\[(\w+)\]", str(one.annotation))
        parts += _options(function, options[1]) if options else [_parameter(one)]
    back = "" if signature.return_annotation is signature.empty else f" -> {signature.return_annotation}"
    line = f"{head}({', '.join(parts)}){back}"
    return [line] if len(line) <= 110 else [f"{head}(", *(f"    {part}," for part in parts), f"){back}"]


def _parameter(one: inspect.Parameter) -> str:
    stars = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
    default = "" if one.default is one.empty else f" = {one.default!r}"
    return f"{stars}{one.name}: {one.annotation}{default}"


def _options(function: Any, name: str) -> list[str]:
    """Return the keywords of a TypedDict."""
    options = function.__globals__.get(name) or next(
        found for module in [*sys.modules.values()] if (found := getattr(module, name, None)) is not None
    )
    return [f"{key}: {getattr(text, '__forward_arg__', text)} = ..." for key, text in options.__annotations__.items()]


def _text(docstring: str) -> list[str]:
    """Return a docstring in Markdown: sections as lists, examples as code."""
    lines: list[str] = []
    for paragraph in inspect.cleandoc(docstring).split("\n\n"):
        section = re.match(r"(Args|Raises|Returns|Yields):\n", paragraph)
        if section:
            lines += ["", f"{section[1]}:", "", *_entries(paragraph[section.end() :])]
        elif paragraph.startswith((">>> ", "    ")):
            lines += ["", "```text", *textwrap.dedent(paragraph).splitlines(), "```"]
        else:
            lines += ["", *paragraph.replace("|", "\\|").splitlines()]
    return lines[1:]


def _entries(block: str) -> Iterator[str]:
    for line in textwrap.dedent(block).splitlines():
        entry = re.match(r"(\w+): ?(.*)", line)
        yield f"- `{entry[1]}`: {entry[2]}" if entry and line[:1] != " " else f"  {line.strip()}"


def main() -> int:
    text = render()
    if "--check" in sys.argv[1:]:
        return int(PAGE.read_text() != text)
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
