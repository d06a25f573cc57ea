"""`redismem demo replay`: store transcripts, time this, read them back and compare."""
