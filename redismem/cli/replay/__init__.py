"""`redismem replay`: store transcripts, measure it, read them back and compare."""
