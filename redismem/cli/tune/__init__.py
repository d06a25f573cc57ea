"""`redismem tune`: measure settings on the user's own conversations, and name those that serve a goal."""
