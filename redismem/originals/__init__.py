"""The stored form of summarised messages: blocks, signatures, vectors."""
