"""The entry point for asyncio, and the removal of everything of a person."""
