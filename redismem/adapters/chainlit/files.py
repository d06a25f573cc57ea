"""The files of elements, in a storage client of Chainlit."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

from chainlit.data.storage_clients.base import BaseStorageClient
from chainlit.element import Element, ElementDict

_log = logging.getLogger("redismem")


async def upload(storage: BaseStorageClient, element: Element, user: str | None) -> dict[str, Any]:
    """Upload the content of an element, and return where it is.

    Raises:
        ValueError: The storage did not take it.
    """
    content = await asyncio.to_thread(Path(element.path).read_bytes) if element.path else element.content or b""
    key = f"{user or 'unknown'}/{element.id}" + (f"/{element.name}" if element.name else "")
    mime = element.mime or "application/octet-stream"
    uploaded = await storage.upload_file(object_key=key, data=content, mime=mime, overwrite=True)
    if not uploaded:
        raise ValueError("the storage provider did not take the content of an element")
    return {"url": uploaded.get("url"), "objectKey": uploaded.get("object_key"), "mime": mime}


async def delete_file(storage: BaseStorageClient | None, element: ElementDict) -> None:
    """Remove the file of an element, if it has one."""
    key = element.get("objectKey")
    if key and storage is not None:
        await storage.delete_file(object_key=key)


async def renew_url(storage: BaseStorageClient | None, element: ElementDict) -> ElementDict:
    """Return an element with a URL that is valid now."""
    key = element.get("objectKey")
    if key and storage is not None:
        try:
            element["url"] = await storage.get_read_url(object_key=key)
        except Exception as error:  # whatever the provider raises: the stored URL may still work
            _log.warning("no URL for an element's file: %s", type(error).__name__)
    return element
