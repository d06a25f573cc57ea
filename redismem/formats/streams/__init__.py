"""The events of a turn as server-sent events in the formats of clients, and the requests of these clients. No I/O."""
