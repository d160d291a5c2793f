"""Hints to owners: the change in their framework's own code, and whether it was made."""
