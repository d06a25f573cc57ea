"""Sharded pub/sub: one connection per node and store, which carries all its channels."""
