"""Items of a project: their schema, versions, indexes and storage."""
