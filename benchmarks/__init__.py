"""Measure the cost of a turn and the size of a session. Run as modules: `python -m benchmarks.turns`."""
