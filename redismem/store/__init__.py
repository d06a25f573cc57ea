"""Send calls to the Redis of a namespace, with retries, a circuit breaker and an optional fallback."""
