"""A mark for tests of the OpenAI Agents SDK that need the snapshots of its compaction, which 0.22 does not have."""

import pytest
from agents.memory import session

needs_snapshots = pytest.mark.skipif(
    not hasattr(session, "_CompactionSnapshot"), reason="this version of the SDK compacts without snapshots"
)
