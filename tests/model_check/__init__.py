"""Random play of the queue protocol against a model in plain Python: `make model`."""
