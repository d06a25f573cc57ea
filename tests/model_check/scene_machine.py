"""The whole machine: the rules of users and workers, and scenes that random play would rarely reach."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import rule

from model_check import (
    archive_scenes,
    edit_scenes,
    eviction_scenes,
    forget_scenes,
    owner_scenes,
    policy_scenes,
    scenes,
    work_scenes,
)
from model_check.machine import names
from model_check.owner_machine import OwnerMachine
from model_check.work_scenes import Scene

EVERY_SCENE = (
    *(*scenes.BEGINNINGS, *scenes.USERS, *policy_scenes.RULED),
    *(*work_scenes.LEASES, *work_scenes.DEAD, *work_scenes.ORIGINALS),
    *(*edit_scenes.EDITS, *archive_scenes.ARCHIVES, *forget_scenes.FORGETS, *eviction_scenes.EVICTIONS, *scenes.LOSSES),
    *owner_scenes.OWNED,
)


class SceneMachine(OwnerMachine):
    """The rules of users, workers, the store and owners, and the scenes."""

    @rule(name=names, scene=st.sampled_from(scenes.USERS))
    def scene_of_users(self, name: str, scene: Scene) -> None:
        scene(self, name)

    @rule(name=names, scene=st.sampled_from(work_scenes.LEASES))
    def scene_of_leases(self, name: str, scene: Scene) -> None:
        scene(self, name)

    @rule(name=names, scene=st.sampled_from(work_scenes.DEAD))
    def scene_of_dead(self, name: str, scene: Scene) -> None:
        scene(self, name)

    @rule(name=names, scene=st.sampled_from(work_scenes.ORIGINALS))
    def scene_of_originals(self, name: str, scene: Scene) -> None:
        scene(self, name)

    @rule(name=names, scene=st.sampled_from((*edit_scenes.EDITS, *archive_scenes.ARCHIVES, *forget_scenes.FORGETS)))
    def scene_of_edits(self, name: str, scene: Scene) -> None:
        scene(self, name)

    @rule(name=names, scene=st.sampled_from(eviction_scenes.EVICTIONS))
    def scene_of_evictions(self, name: str, scene: Scene) -> None:
        scene(self, name)

    @rule(name=names, scene=st.sampled_from(policy_scenes.RULED))
    def scene_of_policies(self, name: str, scene: Scene) -> None:
        scene(self, name)

    @rule(name=names, scene=st.sampled_from(owner_scenes.OWNED))
    def scene_of_owners(self, name: str, scene: Scene) -> None:
        scene(self, name)

    @rule(name=names, scene=st.sampled_from(scenes.LOSSES))
    def scene_of_losses(self, name: str, scene: Scene) -> None:
        scene(self, name)


def play_one(machine: type[SceneMachine], scene: Scene) -> None:
    """Play one scene on a new machine, and raise its failure."""
    playing = machine()
    try:
        scene(playing, "a")
        playing.agrees()
    except BaseException:
        playing.close()
        raise
    playing.teardown()
