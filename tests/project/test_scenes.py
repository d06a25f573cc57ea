"""Scenes that random tests would rarely reach, on both stores."""

from __future__ import annotations

from typing import Any

import pytest
from support import import_scenes
from support.clock import ProjectClock
from support.project_scenes import SCENES, Scene

from redismem.project.project import Project


@pytest.mark.parametrize("scene", [*SCENES, *import_scenes.SCENES], ids=lambda scene: scene.__name__)
async def test_a_scene_ends_as_it_should(scene: Scene, apollo: Project, clock: ProjectClock, raw: Any) -> None:
    await scene(apollo, clock, raw)
