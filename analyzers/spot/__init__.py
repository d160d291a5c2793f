"""Work that could run on spot capacity, and its cost there."""
