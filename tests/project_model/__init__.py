"""Random histories of each store of a project, beside a model that replays them in plain Python."""
