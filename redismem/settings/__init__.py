"""Every setting of a memory with its bounds, from code or from the environment."""

from redismem.settings.settings import Settings

__all__ = ["Settings"]
