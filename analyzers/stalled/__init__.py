"""Jobs whose ranks spin or are idle while the job makes no progress."""
