"""A model that is asked and fails."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from redismem import Message
from redismem.errors import ModelFailed

MESSAGES = [Message("user", "Where is my order?"), Message("assistant", "On its way: canary-text.")]


async def failure(model: Any, messages: Any = MESSAGES) -> ModelFailed:
    async with asyncio.timeout(60):
        with pytest.raises(ModelFailed) as caught:
            await model.summarize(messages, None, 300)
    return caught.value
