"""The lane: one multiplexed connection to one node."""
