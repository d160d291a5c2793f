"""Hints to owners: what to change, in their framework's own lines, and whether it was changed."""
