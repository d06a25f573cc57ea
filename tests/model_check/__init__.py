"""The queue protocol, played by chance against a model in plain Python: `make model`."""
