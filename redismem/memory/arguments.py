"""Arguments of `Memory.connect`, of both kinds: unknown ones are refused, and an embedder is opened."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from redismem.settings.names import SYNONYMS
from redismem.settings.settings import Settings

if TYPE_CHECKING:
    from redismem.recall.embedder import Embed, Embedder


def refuse_others(names: Collection[str], connect: Callable[..., Any]) -> None:
    """Raise TypeError for unknown arguments of `Memory.connect`, with a hint to the right one."""
    for name in names:
        if name in Settings.model_fields or name in SYNONYMS:
            setting = SYNONYMS.get(name, name)
            raise TypeError(f"connect() has no option {name!r}: pass settings=Settings({setting}=...)")
        near = difflib.get_close_matches(name, [*inspect.signature(connect).parameters][:-1], 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise TypeError(f"connect() has no option {name!r}{hint}")


def make_embedder(embed: Embed | str | None, settings: Settings) -> Embedder | None:
    """Return the embedder of this argument, else of the settings; `None` if neither has one. Raise InvalidSettings."""
    if not (source := embed or settings.embed):
        return None
    from redismem.recall.embedder import open_embedder  # only for those who embed

    return open_embedder(source, settings)
