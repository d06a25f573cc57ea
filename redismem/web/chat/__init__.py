"""The chat over HTTP: answer a turn and store it."""
