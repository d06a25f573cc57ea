"""HTTP itself: problem details, JSON, queries, deadlines, static files and the protocol of a connection."""
