"""Export and import of projects."""
