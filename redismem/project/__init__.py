"""Project memory: decisions, tasks, entities and conversations, and when each of them was true."""
