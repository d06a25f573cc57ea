"""What runs off the path of a turn: summaries, the session limit, the sweep, and when each is looked at."""
