"""The embedder `wordllama`: word vectors from a wheel, so it needs no network, no API key and no GPU.

The vector of a text is the mean of the vectors of its tokens. The package's own loader is not used: it imports an HTTP
client and looks for the tokenizer online, though the wheel contains it.
"""

from __future__ import annotations

import asyncio
import threading
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from redismem.errors import InvalidSettings

if TYPE_CHECKING:
    from tokenizers import Tokenizer

NAME = "wordllama"
DIMENSIONS = (64, 128, 256)
"""The lengths to which the authors have trained the vectors to be cut."""
_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"
_WEIGHTS = "weights/l2_supercat_256.safetensors"
_loading = threading.Lock()


class WordLlama:
    """An async callable that embeds texts in a thread. All of a process share one table of word vectors."""

    def __init__(self, dimensions: int = 0) -> None:
        """Find the files of the model without reading them. 0 `dimensions` means 256. Raises InvalidSettings."""
        if dimensions and dimensions not in DIMENSIONS:
            raise InvalidSettings(f"embed_dimensions of wordllama must be {', '.join(map(str, DIMENSIONS))} or 0 (256)")
        self._dimensions = dimensions or DIMENSIONS[-1]
        self._folder = _find_folder()
        self.name = f"{NAME}/{self._dimensions}"

    async def __call__(self, texts: list[str]) -> list[list[float]]:
        """Return one vector of length 1 per text; a text without known words has a vector of zeros."""
        return await asyncio.to_thread(self._embed, texts)

    def _embed(self, texts: list[str]) -> list[list[float]]:
        with _loading:
            tokenizer, table = _load(self._folder)
        vectors = list[list[float]]()
        for text in texts:  # one by one: a batch starts threads, which a forked process would lack
            sendable = text.encode("utf-8", "replace").decode()
            ids = tokenizer.encode(sendable, add_special_tokens=False).ids
            vector = table[ids, : self._dimensions].sum(axis=0, dtype=np.float32)
            vectors.append((vector / max(float(np.linalg.norm(vector)), 1e-9)).tolist())
        return vectors


def _find_folder() -> Path:
    """Return the folder of the package, without importing it. Raises InvalidSettings."""
    spec = find_spec(NAME)
    folder = Path(next(iter(spec.submodule_search_locations or ())) if spec else NAME)
    for name in (_TOKENIZER, _WEIGHTS):
        if not (folder / name).is_file():
            raise InvalidSettings(f"the installed wordllama lacks {name}: pip install 'redismem[wordllama]'")
    return folder


@lru_cache(maxsize=1)
def _load(folder: Path) -> tuple[Tokenizer, np.ndarray[tuple[int, int], np.dtype[np.float16]]]:
    """Read the tokenizer and the table of word vectors: 16 MB, once per process."""
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / _TOKENIZER))
    return tokenizer, load_file(folder / _WEIGHTS)["embedding.weight"]
