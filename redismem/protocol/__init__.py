"""What is said to Redis and what its answers mean. Pure in both directions: commands in, values out, no I/O."""
