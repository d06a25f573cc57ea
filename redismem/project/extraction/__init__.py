"""Extract decisions, tasks and entities from conversations with a model."""
