"""The route that the page reads first: key, model and limits."""

from __future__ import annotations

from importlib.metadata import version

from fastapi import APIRouter, Response

from redismem.slots import ASKED
from redismem.web.api import schemas
from redismem.web.api.sessions import TheCaller, TheMemory, TheService
from redismem.web.http.json import Json

router = APIRouter(prefix="/v1", tags=["operations"])


@router.get("/about", response_model=schemas.About)
async def about(memory: TheMemory, service: TheService, caller: TheCaller) -> Response:
    """Return the key's namespace and scopes, the chat's model, and the limits of the window. Does not ask Redis."""
    model, settings = service.chat.model, memory.settings
    return Json(
        {
            "version": version("redismem"),
            "namespace": caller.namespace,
            "scopes": sorted(caller.scopes),
            "has_keys": not service.access.is_open,
            "owner": caller.owner,
            "model": None if model is None else {"provider": model.provider, "name": model.name},
            "project": service.chat.project,
            "sensitive_params": sorted(service.hidden_params - {ASKED}),
            "threshold": settings.threshold,
            "threshold_tokens": settings.threshold_tokens,
            "recent_limit": settings.recent_limit,
        }
    )
