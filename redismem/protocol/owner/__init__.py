"""The index of an owner: signatures of the blocks of all sessions that one person has."""
