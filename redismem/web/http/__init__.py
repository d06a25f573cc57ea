"""HTTP itself: problems, JSON, deadlines, static files."""
