"""How a session lies in Redis."""

from __future__ import annotations

LAYOUT_VERSION = 1
