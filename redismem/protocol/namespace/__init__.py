"""Calls about a whole namespace: its record, dictionaries, holds."""
