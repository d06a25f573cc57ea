"""What operators ask of a namespace: data out, no words, no terminal. The command line and the web ask it alike."""
