"""Long conversations with questions about them, for `benchmarks.remembering`."""
