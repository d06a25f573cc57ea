"""Calls about turns."""
