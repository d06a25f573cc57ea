"""`redismem bench`: the speed of turns on the user's own Redis."""
