"""Recommend, decide and carry out the actions that remove the waste of findings."""
