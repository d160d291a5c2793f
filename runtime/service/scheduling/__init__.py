"""When reports are due, kept over restarts."""
