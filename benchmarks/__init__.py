"""What a turn costs, and what a session weighs. Run as modules: `python -m benchmarks.turns`."""
