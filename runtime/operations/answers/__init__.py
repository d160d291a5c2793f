"""Answer for Python, assistants and reports what commands print."""
