"""`redismem demo`: a bundled conversation, played, compared and shown."""
