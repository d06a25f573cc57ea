"""Where the sessions of a namespace are kept: calls go in, answers come out, whatever a network does in between."""
