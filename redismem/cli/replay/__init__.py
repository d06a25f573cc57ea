"""`redismem replay`: transcripts through the memory, measured and compared."""
