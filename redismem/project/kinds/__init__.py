"""The kinds of a project's items: decisions, tasks, entities, conversations."""
