"""Read sources and files, and hand their rows to the warehouse."""
