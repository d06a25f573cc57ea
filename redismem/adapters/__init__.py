"""Stores of agent frameworks on redismem. Each file needs its framework, and brings it as an extra of the same name."""
