"""Images of a chat, stored as files. A message contains a reference of 70 bytes instead of an image of a megabyte.

The folder must be shared by all processes, as a bucket is. Images go with their chat and with their user. Those
of an evicted chat stay: let a rule of the bucket remove them after the idle timeout.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from examples.fastapi_chat.problems import Refused

FOLDER = Path(os.environ.get("CHAT_IMAGES", "images"))
TYPES = ("image/png", "image/jpeg", "image/webp", "image/gif")
IMAGE_BYTES = 8 * 1024 * 1024
REFERENCE = re.compile(r"image:([0-9a-f]{64})\.(png|jpeg|webp|gif)")


class Album:
    """The images of a chat of a user."""

    def __init__(self, user: str, chat: str) -> None:
        self._folder = _folder(user) / hashlib.sha256(chat.encode()).hexdigest()  # an id need not be a file name

    async def store(self, content_type: str, chunks: AsyncIterator[bytes]) -> str:
        """Store an image and return its reference. The same image of a chat is stored once."""
        if content_type not in TYPES:
            raise Refused(415, f"an image must be one of {', '.join(TYPES)}")
        content = bytearray()
        async for chunk in chunks:
            content += chunk
            if len(content) > IMAGE_BYTES:
                raise Refused(413, f"an image has at most {IMAGE_BYTES} bytes")
        reference = f"image:{hashlib.sha256(content).hexdigest()}.{content_type.removeprefix('image/')}"
        await asyncio.to_thread(_write, self._path(reference), bytes(content))
        return reference

    async def check(self, references: list[str]) -> None:
        """Raise Refused if the chat does not have one of these images."""
        for reference in references:
            if not REFERENCE.fullmatch(reference) or not await asyncio.to_thread(self._path(reference).is_file):
                raise Refused(404, "there is no such image")

    async def load(self, messages: list[Any]) -> list[Any]:
        """Return the messages with each reference replaced by its image. The given messages stay as they are."""
        return [await self._load_message(message) for message in messages]

    async def remove(self) -> None:
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    async def _load_message(self, message: dict[str, Any]) -> dict[str, Any]:
        if not isinstance(message.get("content"), list):
            return message
        return {**message, "content": [await self._load_part(part) for part in message["content"]]}

    async def _load_part(self, part: dict[str, Any]) -> dict[str, Any]:
        match = REFERENCE.fullmatch(part["image_url"]["url"]) if part.get("type") == "image_url" else None
        if match is None:
            return part
        try:
            content = await asyncio.to_thread(self._path(match[0]).read_bytes)
        except FileNotFoundError:
            return {"type": "text", "text": "(This image is no longer stored.)"}
        url = f"data:image/{match[2]};base64,{base64.b64encode(content).decode()}"
        return {"type": "image_url", "image_url": {"url": url}}

    def _path(self, reference: str) -> Path:
        return self._folder / reference.removeprefix("image:")


async def remove_all(user: str) -> None:
    """Remove all images of a user."""
    await asyncio.to_thread(shutil.rmtree, _folder(user), ignore_errors=True)


def _folder(user: str) -> Path:
    return FOLDER / hashlib.sha256(user.encode()).hexdigest()


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(f".{os.urandom(8).hex()}")
    unfinished.write_bytes(content)
    unfinished.replace(path)  # no reader sees half an image
