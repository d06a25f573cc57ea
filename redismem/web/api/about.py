"""What a page must know before it shows anything."""

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
    """Whose key this is, what answers, and when messages become a summary. Asks the store nothing."""
    model, settings = service.chat.model, memory.settings
    return Json(
        {
            "version": version("redismem"),
            "namespace": caller.namespace,
            "scopes": sorted(caller.scopes),
            "has_keys": not service.access.is_open,
            "model": None if model is None else {"provider": model.provider, "name": model.name},
            "project": service.chat.project,
            "sensitive_params": sorted(service.hidden_params - {ASKED}),
            "threshold": settings.threshold,
            "threshold_tokens": settings.threshold_tokens,
            "recent_limit": settings.recent_limit,
        }
    )
