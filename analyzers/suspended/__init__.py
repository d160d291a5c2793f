"""Jobs that Fallow suspended, and that can run again."""
