"""`redismem demo`: play a bundled conversation, check every step and show it."""
