"""The results of reads and appends, and the records that describe a session. No I/O."""
