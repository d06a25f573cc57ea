"""The stored format of summarised messages: blocks, signatures, vectors."""
