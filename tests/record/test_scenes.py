"""The scripts of records, scene by scene, on both stores."""

from __future__ import annotations

from typing import Any

import pytest
from support.record_scenes import SCENES, Scene

from redismem import Memory


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
async def test_a_scene_plays(memory: Memory, raw: Any, scene: Scene) -> None:
    await scene(memory, raw)
