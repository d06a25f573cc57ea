"""The protocol with Redis: build commands and decode replies, without I/O."""
