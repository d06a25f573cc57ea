"""Operators' queries about a namespace. They return data without wording; the command line and the web share them."""
